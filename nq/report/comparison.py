"""Profiles, or runs, beside each other: their rows, and the table of them."""

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import lt
from pathlib import Path
from statistics import median
from typing import Any

from nq.report.tables import prediction_s
from nq.text import counted, grid, html_table, truncate, visible

BASELINE, MAX_LOSS, MAX_CHANCE = "baseline", 0.005, 0.05
"""The profile to take may lose this share of the micro-F1 of baseline; and by chance the second."""
MIN_ROUNDS, NEAR = 2, 0.95
"""Quiet rounds that a verdict needs; the share of the highest speed that is as fast."""
PAGE, WIDTH, MIB = "compare.html", 80, 1 << 20
FIRST_START = ("load_s", "compile_s", "warmup_s")
SECONDS = {"pre- dict s": "predict_s", "pre- pare s": "prepare_s"}
"""Columns of runs; words of a head stand below each other."""
BAR_WIDTH, COLOR, TAKEN_COLOR = 120, "#7a93b8", "#2f9e62"  # seen on light and dark pages
BAR = (  # notebooks make an image narrower without a least width
    '<svg width="120" height="14" viewBox="0 0 120 14" style="min-width:120px">'
    '<rect y="2" width="{:.0f}" height="10" fill="{}"/>'
    '<path d="M{:.0f} 7H{:.0f}" stroke="currentColor"/></svg>'
)
BREAKS = str.maketrans("+-", "-+")
"""Lets the lines of a profile break where those of other texts do."""


@dataclass(frozen=True)
class ComparisonRow:
    """The measurements of one profile, or of one run; ``None`` where there are none.

    Args:
        windows_per_s: the speed of ``nq answer``: the median of the rounds, of which ``low`` is the
            slowest and ``high`` the fastest.
        times_baseline: this speed divided by that of baseline, the median of the rounds.
        predict_s: seconds that all windows take at this speed.
        first_start_s: seconds until then in a new process: loading, compiling, and what the first
            batches take longer than later ones.
        memory_mb: peak resident memory of the process and its descendants in MiB.
        micro_f1: at the thresholds in use; ``None`` without gold.
        loss: relative loss of micro-F1 against baseline, and the lower end of its interval
            (``nq.evaluation.gate``); ``None`` without gold.
        changed: how many answers differ from those of the profile or run ``against``.
        error: why the profile could not be measured; empty if it was.
        busy: in how many rounds other programs took much of the processor.
        ratios: the speed divided by that of baseline in each quiet round, which has no busy run.
        prepare_s: seconds of waiting for windows, of a run.
    """

    profile: str
    windows_per_s: float | None = None
    low: float | None = None
    high: float | None = None
    times_baseline: float | None = None
    predict_s: float | None = None
    first_start_s: float | None = None
    memory_mb: float | None = None
    micro_f1: float | None = None
    changed: int | None = None
    loss: tuple[float, float] | None = None
    against: str = BASELINE
    error: str = ""
    name: str = ""
    prepare_s: float | None = None
    busy: int = 0
    ratios: tuple[float, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.profile} · {self.name}" if self.name else self.profile

    @property
    def note(self) -> str:
        """What stands below the row: why it failed, or that the speed may not be right."""
        rounds = counted(self.busy, "round")
        busy = f"busy: other programs took much of the processor in {rounds}" if self.busy else ""
        return self.error or busy


def row(result: Mapping[str, Any], **fields: Any) -> ComparisonRow:
    """Returns the row of a run from its ``metrics.json`` and further fields."""
    time = result["time"]
    values = {
        "windows_per_s": result["windows_per_s"],
        "predict_s": prediction_s(time) or None,
        "first_start_s": sum(time.get(name, 0.0) for name in FIRST_START) or None,
        "memory_mb": result["peak_memory_bytes"] / MIB or None,
        "micro_f1": result["metrics"].get("micro_f1"),
        "prepare_s": time.get("preprocess_wait_s"),
    }
    return ComparisonRow(result["profile"], **values | fields)


def figure(value: float | None, digits: int | None = None) -> str:
    """Returns a figure with so many digits after the point, or about three in all.

    >>> figure(8.809), figure(67.3), figure(122.2), figure(0.46839, 4), figure(None)
    ('8.81', '67.3', '122', '0.4684', '')
    """
    if value is None or not math.isfinite(value):
        return ""
    if abs(value) > 1e7:
        return f"{value:.0e}"
    return f"{value:.{(value < 100) + (value < 10) if digits is None else digits}f}"


def cells(rows: Sequence[ComparisonRow]) -> tuple[list[str], list[list[str]]]:
    """Returns the heads of the columns that have a figure, and the texts of each row in them."""
    others = {row.against for row in rows if row.changed is not None}
    other = others.pop().partition(" in ")[0] if len(others) == 1 else "others"
    seconds = SECONDS.items() if any(row.name for row in rows) else ()

    def speed(row: ComparisonRow) -> str:
        rounds = "" if row.low is None else f" ({figure(row.low)}-{figure(row.high)})"
        return "failed" if row.error else figure(row.windows_per_s) + rounds

    columns = {
        "profile": [visible(row.label) for row in rows],
        "windows/s": [*map(speed, rows)],
        "times base- line": [figure(row.times_baseline, 2) for row in rows],
        "first start s": [figure(row.first_start_s) for row in rows],
        **{head: [figure(getattr(row, name)) for row in rows] for head, name in seconds},
        "peak MB": [figure(row.memory_mb, 0) for row in rows],
        "micro F1": [figure(row.micro_f1, 4) for row in rows],
        f"changed from {truncate(visible(other), 8)}": [figure(row.changed, 0) for row in rows],
    }
    filled = {head: texts for head, texts in columns.items() if any(texts)}
    return list(filled), [list(texts) for texts in zip(*filled.values(), strict=True)]


def comparison_table(rows: Sequence[ComparisonRow]) -> str:
    """Returns the table as text of at most 80 columns; a note stands below its row."""
    heads, body = cells(rows)
    words = [head.split() for head in heads]
    height = max(map(len, words))
    lines = [*zip(*([""] * (height - len(parts)) + parts for parts in words), strict=True)]
    columns = [*zip(*lines, *body, strict=True)][1:]
    width = WIDTH - sum(2 + max(map(len, column)) for column in columns)
    notes = dict[int, list[str]]()
    for row, (label, *figures) in zip(rows, body, strict=True):
        first, *others = textwrap.wrap(label.translate(BREAKS), width)
        lines += [(first, *figures), *((part, *[""] * len(figures)) for part in others)]
        note = textwrap.wrap(visible(row.note), WIDTH - 2)
        notes[len(lines) - 1] = [f"  {part}" for part in note]
    aligned = grid(lines[0], [(line[0].translate(BREAKS), *line[1:]) for line in lines[1:]])
    texts = (text for i, line in enumerate(aligned) for text in (line, *notes.get(i, ())))
    return "\n".join(map(str.rstrip, texts))


def advice(rows: Sequence[ComparisonRow]) -> tuple[str, str]:
    """Returns the profile to take, empty if none, and a sentence that names it and tells why.

    A profile keeps the answers if it changes none, or if its relative loss of micro-F1 is at most
    ``MAX_LOSS``, or at most ``MAX_CHANCE`` and no more than chance (its interval contains 0). Of
    these, one is left out if another was faster in every quiet round, or if its median is below
    ``NEAR`` of the highest. Of the others, it is the one with the fewest changed answers, then the
    fewest optimizations.
    """
    baseline = next((row for row in rows if row.profile == BASELINE and row.windows_per_s), None)
    if baseline is None:
        return "", "No profile can be named, since baseline was not measured."
    if len(baseline.ratios) < MIN_ROUNDS:
        quiet = f"{MIN_ROUNDS} quiet rounds are needed, and there are {len(baseline.ratios)}"
        return "", f"No profile is named: {quiet}. The same command measures busy rounds again."
    measured = [row for row in rows if row.ratios]
    measured.sort(key=lambda row: (-median(row.ratios), row.profile))

    def cost(row: ComparisonRow) -> str:
        f1 = ""
        if row.changed and row.loss:
            loss, low = row.loss
            chance = " (may be chance)" if low <= 0 < loss else ""
            f1 = f", relative {'loss' if loss >= 0 else 'gain'} of micro-F1 {abs(loss):.1%}{chance}"
        changes = counted(row.changed, "changed answer") if row.changed else "no changed answer"
        return f"{figure(median(row.ratios), 2)} times as fast as baseline, {changes}{f1}"

    fit = [row for row in measured if not row.changed or _loses_little(row)]
    near = [row for row in fit if median(row.ratios) >= NEAR * median(fit[0].ratios)]
    near = [row for row in near if not any(all(map(lt, row.ratios, one.ratios)) for one in fit)]
    best = min(near, key=lambda row: (row.changed or 0, row != baseline, row.profile.count("+")))
    others = ", ".join(row.profile for row in near if row is not best)
    reason = "no profile that keeps the answers is faster" if best is baseline else cost(best)
    equal = f"; as fast within the rounds: {others}" if others else ""
    lost = f" The fastest, {measured[0].profile}, loses too much: {cost(measured[0])}."
    return best.profile, f"Take {best.profile}: {reason}{equal}." + lost * (measured[0] not in fit)


def _loses_little(row: ComparisonRow) -> bool:
    if row.loss is None:
        return False
    loss, low = row.loss
    return loss <= (MAX_LOSS if low > 0 else MAX_CHANCE)


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
            is_taken, speed = row.profile == take, row.windows_per_s or 0.0
            note = Markup("<br><small>{}</small>").format(visible(row.note)) if row.note else ""
            texts[0] = Markup("<b>{}</b>{}" if is_taken else "{}{}").format(texts[0], note)
            ends = ((end or speed) * scale for end in (row.low, row.high))
            color = TAKEN_COLOR if is_taken else COLOR
            texts.append(Markup(BAR).format(speed * scale, color, *ends) if speed else "")
        names = [*(head.replace("- ", "") for head in heads), ""]
        page = visible(f"the page: {self.folder / PAGE}")
        return html_table([reason, page], names, body, "right")
