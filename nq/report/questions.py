"""A question of a report with the answers of the run, and of the run that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nq.evaluation.labels import Label
from nq.evaluation.nq_eval import Decision
from nq.records import Example, ExampleId, Source, Span
from nq.report.losses import Case, Outcome
from nq.report.losses import outcome as outcome_of

NOT_SCORED = ""
"""In place of an outcome: gold is not known."""


@dataclass(frozen=True, slots=True)
class Scored:
    """The answers of one run to a question, with their outcomes where gold is known.

    Args:
        label: the prediction.
        long, short: compared with gold; ``None`` without gold.
    """

    label: Label
    long: Decision | None = None
    short: Decision | None = None

    def outcomes(self) -> list[str]:
        """Returns the outcome of the answer, of the long and of the short answer.

        The answer is what the table of answers shows: the short answer if gold has one, else the
        long one; where gold has neither, no answer is right.
        """
        if self.long is None or self.short is None:
            return [NOT_SCORED] * 3
        long, short = outcome_of(self.long), outcome_of(self.short)
        if self.short.has_gold:
            return [short, long, short]
        if self.long.has_gold:
            return [long, long, short]
        extra = Outcome.EXTRA in (long, short)
        return [Outcome.EXTRA if extra else Outcome.NULL, long, short]

    def scores(self) -> list[float]:
        """Returns the score of the answer, of the long and of the short answer."""
        label, short = self.label, self.label.has_short
        if self.short is not None and self.long is not None:
            short = self.short.has_gold or (short and not self.long.has_gold)
        answer = label.short_score if short else label.long_score
        return [round(float(x), 4) for x in (answer, label.long_score, label.short_score)]


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a run with everything that the report shows.

    Args:
        example_id: id of the example.
        mine: the answers of the run.
        other: those of the run that it is compared with.
        changed: whether the two differ.
        n_best: what ``nbest.jsonl`` has for it; ``None`` if there is none.
        example: question and page; ``None`` if the data are gone.
        source: file and line of the example.
        case: the example with its gold; ``None`` without annotations.
    """

    example_id: ExampleId
    mine: Scored
    other: Scored | None = None
    changed: bool = False
    n_best: Mapping[str, Any] | None = None
    example: Example | None = None
    source: Source | None = None
    case: Case | None = None


def long_spans(label: Label) -> list[Span]:
    """Returns the long answer of a prediction as a list of at most one span of tokens."""
    return [Span(*label.long.tokens)] if label.has_long and label.long.start_token >= 0 else []


def short_spans(label: Label) -> list[Span]:
    """Returns the short answers of a prediction as spans of tokens."""
    return [Span(*span.tokens) for span in label.short_spans if span.start_token >= 0]
