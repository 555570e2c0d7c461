"""The recorded runs of an experiment as one HTML page without scripts or links to other files."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from nq.report.comparison import HEAD, cells, note, number, short_name
from nq.text import truncate
from nq.tracking import History, RecordedRun, color

WIDTH, HEIGHT = 1000, 460
LEFT, RIGHT, TOP, BOTTOM = 62, 290, 18, 48
"""The picture and its margins in pixels; names stand in the right one."""
RADIUS, LINE, LABEL_CHARS = 6, 15, 42
TICKS = 6
LOGARITHMIC_FROM = 12.0
"""The axis of time is logarithmic if the slowest run took so many times longer than the fastest."""

STYLE = """
:root { color-scheme: light dark; --paper: #fbfbf9; --card: #fff; --ink: #22252a; --quiet: #6a7078;
  --line: #e4e5e1 }
@media (prefers-color-scheme: dark) { :root { --paper: #17191c; --card: #1f2226; --ink: #e4e6e8;
  --quiet: #9aa1a9; --line: #33373c } }
body { margin: 0 auto; max-width: 78rem; padding: 2rem 1.2rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem; font-weight: 600; margin: 0 0 .3rem }
p { color: var(--quiet); margin: .2rem 0 1rem; max-width: 60rem }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 1rem 1.1rem; margin: 1rem 0; overflow-x: auto }
svg { display: block; width: 100%; min-width: 640px; height: auto }
svg text { fill: var(--ink); font-size: 12px } svg .quiet { fill: var(--quiet) }
svg line { stroke: var(--line) } svg .link { stroke: var(--quiet); stroke-width: .7 }
table { border-collapse: collapse; width: 100%; font-size: .88rem;
  font-variant-numeric: tabular-nums }
th { font-weight: 500; color: var(--quiet); white-space: nowrap }
th, td { padding: .3rem .5rem; text-align: right; border-bottom: 1px solid var(--line) }
td { white-space: nowrap }
th:nth-child(-n+2), td:nth-child(-n+2), th:last-child, td:last-child { text-align: left }
td:first-child, td:last-child { white-space: normal; min-width: 9rem }
i { display: inline-block; width: .7rem; height: .7rem; border-radius: 50%; margin-right: .4rem }
"""
EXPLANATION = (
    "The best runs are at the top left: little time, high F1. Time is the total of a run, with the "
    "loading of the model and the preparation of the windows. A hollow mark stands for a run whose "
    "time is not comparable; the table says why."
)


def page(history: History, runs: Sequence[RecordedRun]) -> str:
    """Returns the page.

    Args:
        history: of the experiment.
        runs: its runs, in the order of the table.
    """
    title = html.escape(f"{len(runs)} runs of the experiment {history.experiment}")
    drawn = [run for run in runs if run.micro_f1 is not None and math.isfinite(run.total_s)]
    picture = f'<div class="card">{_picture(drawn)}</div>' if drawn else ""
    about = EXPLANATION if drawn else "No run has an F1: the data have no annotations."
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{STYLE}</style>
<h1>{title}</h1>
<p>{html.escape(about)}</p>
{picture}
<div class="card">{_table(runs)}</div>
<p>In MLflow: {html.escape(history.how_to_open)}</p>
</html>
"""


def _table(runs: Sequence[RecordedRun]) -> str:
    machines = len({run.machine for run in runs if run.machine}) > 1
    head = "".join(f"<th>{html.escape(name)}</th>" for name in HEAD)
    rows = []
    for run in runs:
        name, *others = map(html.escape, cells(run, machines))
        mark = f'<i style="background:{color(run.profile)}"></i>'
        rest = "".join(f"<td>{text}</td>" for text in others)
        rows.append(f"<tr><td>{mark}{name}</td>{rest}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


class _Axis:
    """One axis of the picture, which places values and names some of them.

    Args:
        values: to be shown, at least one.
        start, end: pixels of the smallest and the largest value.
        logarithmic: whether equal ratios, not equal differences, have equal lengths.
    """

    def __init__(
        self, values: Sequence[float], start: float, end: float, logarithmic: bool = False
    ) -> None:
        self._start, self._end, self._log = start, end, logarithmic
        self.ticks = _ratio_ticks(values) if logarithmic else _ticks(min(values), max(values))
        self._low, self._high = self._of(self.ticks[0]), self._of(self.ticks[-1])

    def __call__(self, value: float) -> float:
        """Returns the pixel of a value."""
        share = (self._of(value) - self._low) / (self._high - self._low)
        return round(self._start + share * (self._end - self._start), 1)

    def _of(self, value: float) -> float:
        return math.log(value) if self._log else value


def _ticks(low: float, high: float) -> list[float]:
    """Returns round values from at most the lowest to at least the highest.

    >>> _ticks(0, 42.0)
    [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    """
    high = high if high > low else low + (abs(low) or 1.0) / 10
    rough = (high - low) / (TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(n * step, 10) for n in range(first, last + 1)]


def _ratio_ticks(values: Sequence[float]) -> list[float]:
    """Returns the values 1, 2, 5, 10, 20, … from at most the lowest to at least the highest.

    >>> _ratio_ticks([3.0, 70.0])
    [2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    """
    powers = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    marks = [n * 10.0**power for power in powers for n in (1, 2, 5)]
    first = max(i for i, mark in enumerate(marks) if mark <= min(values))
    last = min(i for i, mark in enumerate(marks) if mark >= max(values))
    return marks[first : max(last, first + 1) + 1]


def _picture(runs: Sequence[RecordedRun]) -> str:
    """Returns time against F1 as SVG."""
    times = [run.total_s for run in runs]
    logarithmic = min(times) > 0 and max(times) > LOGARITHMIC_FROM * min(times)
    x = _Axis(times if logarithmic else [0.0, *times], LEFT, WIDTH - RIGHT, logarithmic)
    y = _Axis([run.micro_f1 or 0.0 for run in runs], HEIGHT - BOTTOM, TOP)
    base, end = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [
        f'<line x1="{x(tick)}" x2="{x(tick)}" y1="{TOP}" y2="{base}"/>'
        f'<text class="quiet" x="{x(tick)}" y="{base + 18}" text-anchor="middle">{tick:g}</text>'
        for tick in x.ticks
    ]
    parts += [
        f'<line x1="{LEFT}" x2="{end}" y1="{y(tick)}" y2="{y(tick)}"/>'
        f'<text class="quiet" x="{LEFT - 8}" y="{y(tick) + 4}" text-anchor="end">{tick:g}</text>'
        for tick in y.ticks
    ]
    middle = (LEFT + end) / 2
    parts += [
        f'<text class="quiet" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">'
        "total seconds of the run</text>",
        f'<text class="quiet" x="14" y="{(TOP + base) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(TOP + base) / 2})">micro-F1</text>',
    ]
    marks, lowest = _marks(runs, x, y)
    parts += marks
    label = f"Time against F1 of {len(runs)} runs"
    return (
        f'<svg viewBox="0 0 {WIDTH} {max(HEIGHT, lowest):.0f}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )


def _marks(runs: Sequence[RecordedRun], x: _Axis, y: _Axis) -> tuple[list[str], float]:
    """Returns the marks of the runs with their profiles in the right margin, and where these end.

    No profile stands on another one.
    """
    parts, line = [], float(TOP)
    for run in sorted(runs, key=lambda run: (-(run.micro_f1 or 0.0), run.total_s)):
        label = html.escape(truncate(run.profile, LABEL_CHARS))
        across, down, tint = x(run.total_s), y(run.micro_f1 or 0.0), color(run.profile)
        line = max(line, down)
        comparable = not run.speed_comparable.startswith("no")
        fill = tint if comparable else "none"
        f1, remark = number(run.micro_f1, 4), note(run, False)
        title = f"{run.profile} · {short_name(run)}: {run.total_s:.1f} s, micro-F1 {f1}; {remark}"
        start = WIDTH - RIGHT + 14
        parts.append(
            f'<line class="link" x1="{across + RADIUS}" y1="{down}" x2="{start - 4}" y2="{line}"/>'
            f'<circle cx="{across}" cy="{down}" r="{RADIUS}" fill="{fill}" stroke="{tint}" '
            f'stroke-width="2"><title>{html.escape(title)}</title></circle>'
            f'<text x="{start}" y="{line + 4}">{label}</text>'
        )
        line += LINE
    return parts, line
