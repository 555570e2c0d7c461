"""The data that the package contains: a trained model and a sample of questions."""

from importlib import resources
from pathlib import Path


def bundled_model() -> Path:
    """Returns the folder of the bundled model."""
    return Path(str(resources.files("nq") / "bundled"))


def bundled_sample() -> Path:
    """Returns the file of the 40 bundled questions."""
    return Path(str(resources.files("nq") / "sample" / "questions.jsonl"))
