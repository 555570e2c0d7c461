"""The verdict on the rows of a comparison: which to take and why; and its page."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from operator import lt
from pathlib import Path
from statistics import median
from typing import Any

from nq.report.comparison import BASELINE, ComparisonRow, cells, comparison_table, figure
from nq.report.page import CHART_CODE, render, script_json
from nq.text import counted, html_table, visible

MAX_LOSS, MAX_CHANCE = 0.005, 0.05
"""The row to take may lose this share of the micro-F1 of baseline; and by chance the second."""
MIN_ROUNDS, NEAR = 2, 0.95
"""Quiet rounds that a verdict needs; the share of the highest speed that is as fast."""
PAGE = "compare.html"
BAR_WIDTH, COLOR, TAKEN_COLOR = 120, "#7a93b8", "#2f9e62"  # seen on light and dark pages
BAR = (  # notebooks make an image narrower without a least width
    '<svg width="120" height="14" viewBox="0 0 120 14" style="min-width:120px">'
    '<rect y="2" width="{:.0f}" height="10" fill="{}"/>'
    '<path d="M{:.0f} 7H{:.0f}" stroke="currentColor"/></svg>'
)


def advice(rows: Sequence[ComparisonRow]) -> tuple[str, str]:
    """Returns the label of the row to take, empty if none, and a sentence that tells why.

    A row keeps the answers if it changes none, or if its relative loss of micro-F1 is at most
    ``MAX_LOSS``, or at most ``MAX_CHANCE`` and no more than chance (its interval contains 0). Of
    these, one is left out if another was faster in every quiet round, or if its median is below
    ``NEAR`` of the highest. Of the others, it is the one with the fewest changed answers, then the
    fewest optimizations.
    """
    baseline = next((row for row in rows if row.label == BASELINE and row.windows_per_s), None)
    if baseline is None:
        return "", "No profile can be named, since baseline was not measured."
    if len(baseline.ratios) < MIN_ROUNDS:
        quiet = f"{MIN_ROUNDS} quiet rounds are needed, and there are {len(baseline.ratios)}"
        return "", f"No profile is named: {quiet}. The same command measures busy rounds again."
    measured = [row for row in rows if row.ratios]
    measured.sort(key=lambda row: (-median(row.ratios), row.label))
    fit = [row for row in measured if _keeps_answers(row)]
    near = [row for row in fit if median(row.ratios) >= NEAR * median(fit[0].ratios)]
    near = [row for row in near if not any(all(map(lt, row.ratios, one.ratios)) for one in fit)]
    best = min(near, key=lambda row: (row.changed or 0, row != baseline, row.profile.count("+")))
    reason = _cost(best) if best != baseline else "no profile that keeps the answers is faster"
    if others := ", ".join(row.label for row in near if row is not best):
        reason += f"; as fast within the rounds: {others}"
    text = f"Take {best.label}: {reason}."
    if measured[0] not in fit:
        text += f" The fastest, {measured[0].label}, loses too much: {_cost(measured[0])}."
    return best.label, text


def _keeps_answers(row: ComparisonRow) -> bool:
    if not row.changed or row.loss is None:
        return not row.changed
    loss, low = row.loss
    return loss <= (MAX_LOSS if low > 0 else MAX_CHANCE)


def _cost(row: ComparisonRow) -> str:
    speed = f"{figure(median(row.ratios), 2)} times as fast as baseline"
    if not row.changed:
        return f"{speed}, no changed answer"
    text = f"{speed}, {counted(row.changed, 'changed answer')}"
    if row.loss is None:
        return text
    loss, low = row.loss
    chance = " (may be chance)" if low <= 0 < loss else ""
    return f"{text}, relative {'loss' if loss >= 0 else 'gain'} of micro-F1 {abs(loss):.1%}{chance}"


class Comparison(list[ComparisonRow]):
    """The rows of a comparison, the fastest first, and its folder, which has the page."""

    def __init__(self, rows: Iterable[ComparisonRow], folder: Path) -> None:
        super().__init__(rows)
        self.folder = folder

    def __repr__(self) -> str:
        return f"{comparison_table(self)}\n\n{advice(self)[1]}"

    def _repr_html_(self) -> str:
        """Returns the table with bars of the speeds; a line has the range of the rounds."""
        from markupsafe import Markup

        (take, reason), (heads, body) = advice(self), cells(self)
        scale = BAR_WIDTH / max(row.high or row.windows_per_s or 1e-9 for row in self)
        for row, texts in zip(self, body, strict=True):
            is_taken, speed = row.label == take, row.windows_per_s or 0.0
            note = Markup("<br><small>{}</small>").format(visible(row.note)) if row.note else ""
            texts[0] = Markup("<b>{}</b>{}" if is_taken else "{}{}").format(texts[0], note)
            ends = ((end or speed) * scale for end in (row.low, row.high))
            color = TAKEN_COLOR if is_taken else COLOR
            texts.append(Markup(BAR).format(speed * scale, color, *ends) if speed else "")
        names = [*(head.replace("- ", "") for head in heads), ""]
        page = visible(f"the page: {self.folder / PAGE}")
        return html_table([reason, page], names, body, "right")


def comparison_page(
    rows: Sequence[ComparisonRow], title: str, sentences: Sequence[str], changes: Sequence[Any] = ()
) -> bytes:
    """Returns a page of one file with charts of the rows, at least one, and their table.

    ``changes`` has the question and, by label, the answers (as in the details of a question).
    """
    values = [asdict(row) | {"label": row.label} for row in rows]
    json = {"rows": script_json(values), "changes": script_json(changes)}
    comparison = *cells(rows), [row.note for row in rows]
    view = {"title": title, "sentences": sentences, "comparison": comparison}
    return render("compare.html", [*CHART_CODE, "compare.js"], json, **view)
