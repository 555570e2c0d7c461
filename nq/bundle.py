"""What comes with the package: a trained model and a sample of questions."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def bundled_model() -> Path:
    """The folder of the model that comes with the package."""
    return Path(str(resources.files("nq") / "bundled"))


def bundled_sample() -> Path:
    """The questions that come with the package."""
    return Path(str(resources.files("nq") / "sample" / "questions.jsonl"))
