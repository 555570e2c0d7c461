"""The data that the package contains: two trained models and a sample of questions."""

from importlib import resources
from pathlib import Path

READER = "small"
RANKER = "ranker"
"""The model that answers, and the one that ranks blocks for it."""


def bundled_pair() -> Path:
    """Returns the folder of both models, and of their common decision."""
    return Path(str(resources.files("nq") / "bundled"))


def bundled_model(name: str = READER) -> Path:
    """Returns the folder of one of the models, ``READER`` or ``RANKER``."""
    return bundled_pair() / name


def bundled_sample() -> Path:
    """Returns the file of the 40 bundled questions."""
    return Path(str(resources.files("nq") / "sample" / "questions.jsonl"))
