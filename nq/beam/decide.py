"""Scores -> answers as a Beam transform."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam

from nq.beam.elements import Decided, Scored
from nq.config import DecisionConfig
from nq.evaluation.answers import answer
from nq.formats import outputs
from nq.model.spec import find_model


class Decide(beam.PTransform):  # type: ignore[misc]
    """Decides examples from the scores of their windows, as ``ScoreWindows`` yields them.

    Each element of the result is the answer to an example (``nq.beam.elements.Decided``), whose
    ``prediction`` is in the official format. It has no page any more.

    Args:
        decision: how scores become answers, or folder or name of the model whose settings it is
            in; by default those of the bundled model.
        formats: names of output formats (``nq.formats.outputs``) that answers have besides.
        table_rows: answers from the first so many lines of a file are rows of the table of answers.
    """

    def __init__(
        self,
        decision: DecisionConfig | str | Path | None = None,
        formats: str | Sequence[str] = (),
        table_rows: int = 0,
    ) -> None:
        super().__init__()
        if not isinstance(decision, DecisionConfig):
            decision = find_model(decision).decision
        self.settings = decision, outputs.parse(formats), table_rows

    def expand(self, scored: Any) -> Any:
        return scored | "Decide" >> beam.Map(_decide, *self.settings)


def _decide(
    scored: Scored, decision: DecisionConfig, formats: Sequence[str], table_rows: int
) -> Decided:
    example, with_row = scored.example, scored.source.line <= table_rows
    answered = answer(example, scored.scores, decision, formats, with_row)
    return Decided(scored.source, example.question, answered, scored.work)
