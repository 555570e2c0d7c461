"""The rows of a comparison with their verdict, as text, in a notebook and as a page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nq.comparison.verdict import advice
from nq.evaluation.tuning import MIN_TUNED
from nq.report.comparison import ComparisonRow, cells, comparison_table
from nq.report.page import CHART_CODE, render, script_json
from nq.text import html_table, visible

BAR_WIDTH, COLOR, TAKEN_COLOR = 120, "#7a93b8", "#2f9e62"  # seen on light and dark pages
BAR = (  # notebooks make an image narrower without a least width
    '<svg width="120" height="14" viewBox="0 0 120 14" style="min-width:120px">'
    '<rect y="2" width="{:.0f}" height="10" fill="{}"/>'
    '<path d="M{:.0f} 7H{:.0f}" stroke="currentColor"/></svg>'
)


class Comparison(list[ComparisonRow]):
    """The rows of a comparison, its page, and the folder of that."""

    def __init__(self, rows: Iterable[ComparisonRow], page: Path) -> None:
        super().__init__(rows)
        self.page, self.folder = page, page.parent

    def __repr__(self) -> str:
        return f"{comparison_table(self)}\n\n{advice(self)[1]}"

    def _repr_html_(self) -> str:
        """Returns the table with bars of the speeds; a line has the range of the rounds."""
        from markupsafe import Markup

        (take, reason), (heads, body) = advice(self), cells(self)
        bars = [_bar(row) for row in self]
        scale = BAR_WIDTH / max(1e-9, *(max(one) for one in bars))
        for row, bar, texts in zip(self, bars, body, strict=True):
            is_taken, (speed, *ends) = row.label == take, (end * scale for end in bar)
            note = Markup("<br><small>{}</small>").format(visible(row.note)) if row.note else ""
            texts[0] = Markup("<b>{}</b>{}" if is_taken else "{}{}").format(texts[0], note)
            color = TAKEN_COLOR if is_taken else COLOR
            texts.append(Markup(BAR).format(speed, color, *ends) if speed else "")
        names = [*(head.replace("- ", "") for head in heads), ""]
        page = visible(f"the page: {self.page}")
        return html_table([reason, page], names, body, "right")


def _bar(row: ComparisonRow) -> list[float]:
    """Returns the speed with its ends, in questions where a row has these."""
    speed = row.windows_per_s or 0.0
    unit = row.questions_per_s / speed if row.questions_per_s and speed else 1.0
    return [unit * (end or speed) for end in (speed, row.low, row.high)]


def comparison_page(
    rows: Sequence[ComparisonRow],
    title: str,
    reason: str,
    about: Sequence[str] = (),
    changes: Sequence[Any] = (),
    agreement: Mapping[str, Sequence[float]] | None = None,
) -> bytes:
    """Returns a page of one file with charts of the rows, at least one, and their table.

    ``about`` is what was measured, on what machine; ``changes`` and ``agreement`` are those of
    ``nq.comparison.runs.ComparedRuns``.
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
        reason=reason,
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
    shares = {one: dict(zip(agreement, line, strict=True)) for one, line in agreement.items()}
    known = [label for label in labels if label in shares]
    body = [
        [f"{number} {one}", *(f"{shares[one][other]:.0%}" for other in known)]
        for number, one in enumerate(known, 1)
    ]
    return ["equal answers", *(str(number) for number in range(1, len(known) + 1))], body
