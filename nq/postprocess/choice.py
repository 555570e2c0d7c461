"""The default decision: block, span and type of the answer chosen together."""

from __future__ import annotations

from nq.config import DecisionConfig
from nq.records import Example, Prediction, WindowScores


def choose(example: Example, scores: WindowScores, config: DecisionConfig) -> Prediction:
    """To be written from measurements."""
    return Prediction(example.example_id)
