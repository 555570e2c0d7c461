"""The rows of a comparison with their verdict, as text, in a notebook and as a page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nq.evaluation.gate import Gate
from nq.evaluation.tuning import MIN_TUNED
from nq.lab.rows import Row, cells, comparison_table
from nq.lab.verdict import advice, standing_of
from nq.report.page import CHART_CODE, render, script_json
from nq.text import html_table, visible

NO_PAGE = Path()
BAR_WIDTH = 120
COLOR, TAKEN_COLOR = "#7a93b8", "#2f9e62"  # seen on light and dark pages
BAR = (  # notebooks make an image narrower without a least width
    '<svg width="120" height="14" viewBox="0 0 120 14" style="min-width:120px">'
    '<rect y="2" width="{:.0f}" height="10" fill="{}"/>'
    '<path d="M{:.0f} 7H{:.0f}" stroke="currentColor"/></svg>'
)


class Comparison(list[Row]):
    """The rows of a comparison.

    Attributes:
        page, folder: the page and its folder; ``NO_PAGE`` where a run is compared without one.
        take: the label of the row to take; empty if none is named.
        reason: a sentence that tells why.
        n_questions: how many were answered, where a run is compared with another one.
        gate: the relative loss of the first row against the last, likewise.
    """

    def __init__(
        self,
        rows: Iterable[Row],
        page: Path = NO_PAGE,
        n_questions: int = 0,
        gate: Gate | None = None,
    ) -> None:
        super().__init__(rows)
        self.page = page
        self.folder = page.parent
        self.n_questions = n_questions
        self.gate = gate
        self.take, self.reason = advice(self)

    @property
    def standing(self) -> str:
        """Which of the rows has the best F1; empty without gold."""
        return standing_of(self)

    @property
    def summary(self) -> str:
        """How the first of two rows differs from the other, in one line to three."""
        row, other = self
        changed = row.changed or 0
        share = changed / max(1, self.n_questions)
        f1 = [
            f", {name} by {row.quality[name] - other.quality[name]:+.4f}"
            for name in row.quality
            if name in other.quality
        ]
        drift = ""
        if row.max_drift is not None:
            drift = f"; best logits differ by {row.max_drift:.2g} at most"
        counts = f"{changed} of {self.n_questions} answers changed ({share:.1%})"
        lines = [f"against {other.label}: {counts}{''.join(f1)}{drift}"]
        if self.standing:
            lines.append(self.standing)
        if self.gate and self.gate.verdict:
            lines.append(f"gate: {self.gate}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Returns the rows with the verdict, as JSON values."""
        values: dict[str, Any] = {
            "take": self.take,
            "reason": self.reason,
            "rows": list(map(asdict, self)),
        }
        if self.page != NO_PAGE:
            values["page"] = str(self.page)
        if self.gate is not None:
            values["gate"] = self.gate.to_dict()
        return values

    def __repr__(self) -> str:
        return f"{comparison_table(self)}\n\n{self.reason}"

    def _repr_html_(self) -> str:
        """Returns the table with bars of the speeds; a line has the range of the rounds."""
        from markupsafe import Markup

        heads, body = cells(self)
        bars = [_bar(row) for row in self]
        scale = BAR_WIDTH / max(1e-9, *(max(one) for one in bars))
        for row, bar, texts in zip(self, bars, body, strict=True):
            is_taken = row.label == self.take
            speed, *ends = (end * scale for end in bar)
            note = Markup("<br><small>{}</small>").format(visible(row.note)) if row.note else ""
            texts[0] = Markup("<b>{}</b>{}" if is_taken else "{}{}").format(texts[0], note)
            color = TAKEN_COLOR if is_taken else COLOR
            texts.append(Markup(BAR).format(speed, color, *ends) if speed else "")
        names = [*(head.replace("- ", "") for head in heads), ""]
        lines = [self.reason]
        if self.page != NO_PAGE:
            lines.append(visible(f"the page: {self.page}"))
        return html_table(lines, names, body, "right")


def _bar(row: Row) -> list[float]:
    """Returns the speed with its ends, in questions where a row has these."""
    speed = row.windows_per_s or 0.0
    unit = row.questions_per_s / speed if row.questions_per_s and speed else 1.0
    return [unit * (end or speed) for end in (speed, row.low, row.high)]


def comparison_page(
    rows: Comparison,
    title: str,
    about: Sequence[str] = (),
    changes: Sequence[Any] = (),
    agreement: Mapping[str, Sequence[float]] | None = None,
) -> bytes:
    """Returns a page of one file with charts of the rows, at least one, and their table.

    ``about`` is what was measured, on what machine; ``changes`` and ``agreement`` are those of
    ``nq.lab.compare.Answers``.
    """
    are_runs = any(row.name for row in rows)
    values = [asdict(row) | {"label": row.label, "f1": row.f1} for row in rows]
    json = {"rows": script_json(values), "changes": script_json(changes)}
    equal = _equal_answers([row.label for row in rows], agreement or {})
    return render(
        "compare.html",
        [*CHART_CODE, "compare.js"],
        json,
        command="report" if are_runs else "compare",
        are_runs=are_runs,
        unit="questions/s" if any(row.questions_per_s for row in rows) else "windows/s",
        title=title,
        reason=rows.reason,
        about=about,
        agreement=equal if len(equal[1]) > 1 else None,
        comparison=cells(rows),
        remarks=[row.note for row in rows],
        has_models=any(row.model for row in rows),
        is_fitted=any(row.fitted for row in rows),
        min_tuned=MIN_TUNED,
    )


def _equal_answers(
    labels: Sequence[str], agreement: Mapping[str, Sequence[float]]
) -> tuple[list[str], list[list[str]]]:
    """Returns the heads and the lines of a table, in which numbers stand for the labels."""
    columns = {label: position for position, label in enumerate(agreement)}
    known = [label for label in labels if label in agreement]
    body = [
        [f"{number} {one}", *(f"{agreement[one][columns[other]]:.0%}" for other in known)]
        for number, one in enumerate(known, 1)
    ]
    return ["equal answers", *map(str, range(1, len(known) + 1))], body
