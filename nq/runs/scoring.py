"""predictions -> score: gold and predictions of a run, handed to ``eval.nq_eval``."""

from __future__ import annotations

from typing import Any

from nq.evaluation import labels, nq_eval
from nq.formats.predictions import byte_span
from nq.records import Annotation, Example, ExampleId, IntArray, Span


class Scorekeeper:
    """Gathers what the evaluation compares; a few numbers an example, no text."""

    def __init__(self) -> None:
        self._gold: dict[ExampleId, list[labels.Label]] = {}
        self._predictions: dict[ExampleId, labels.Label] = {}
        self.without_gold = 0

    def add(self, example: Example, encoded: dict[str, Any]) -> bool | None:
        """Takes in one prediction; whether it is right, ``None`` without gold."""
        if not example.annotations:
            self.without_gold += 1
            return None
        label = labels.prediction_label(encoded)
        gold = [gold_label(a, example.token_bytes) for a in example.annotations]
        self._gold[example.example_id] = gold
        self._predictions[example.example_id] = label
        return _is_right(gold, label)

    def metrics(self) -> dict[str, float]:
        """All metrics; empty where there was no gold at all.

        An example that one person annotated has an answer if that one gave it.
        """
        if not self._gold:
            return {}
        return nq_eval.score(self._gold, self._predictions, one_annotator=True)


def gold_label(annotation: Annotation, token_bytes: IntArray | None) -> labels.Label:
    """What one annotator answered, as the evaluation compares it."""
    return labels.Label(
        _span(annotation.long, token_bytes),
        tuple(_span(span, token_bytes) for span in annotation.shorts),
        annotation.yes_no.lower(),
    )


def _span(span: Span | None, token_bytes: IntArray | None) -> labels.Span:
    if span is None or span.start >= span.end:
        return labels.Span()
    return labels.Span(*byte_span(span, token_bytes), span.start, span.end)


def _is_right(gold: list[labels.Label], label: labels.Label) -> bool:
    """Whether a person would call it right: the short answer if gold has one, else the long
    one, else that nothing was answered."""
    long, short = nq_eval.decisions({0: gold}, {0: label}, one_annotator=True)
    for decision in (*short, *long):
        if decision.has_gold:
            return decision.correct
    return not any(d.predicted for d in (*short, *long))
