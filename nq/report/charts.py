"""The numbers of the charts, and where they are drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nq.evaluation.nq_eval import Decision, Point, best, sweep

MAX_POINTS = 160


@dataclass(frozen=True, slots=True)
class Axis:
    """Places values from ``low`` to ``high`` evenly on the pixels from ``start`` to ``end``.

    >>> Axis(0, 2, 32, 276)(1)
    154.0
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.start + min(max(share, 0.0), 1.0) * (self.end - self.start), 1)

    def ticks(self, count: int) -> list[float]:
        return [self.low + i / (count - 1) * (self.high - self.low) for i in range(count)]


UNIT, HEIGHT = Axis(0.0, 1.0, 32.0, 276.0), Axis(0.0, 1.0, 168.0, 10.0)
"""The axes of a chart of probabilities; all charts have the vertical one."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Precision, recall and F1 of the answers of one kind over the threshold of their scores.

    ``best`` has the highest F1; ``given`` is the point of all answers that were given.
    """

    points: Sequence[Point]
    best: Point
    given: Point

    def path(self, x: Axis, measure: str) -> str:
        """Returns the line of a measure as the commands of an SVG path."""
        steps = [
            f"{x(p.threshold)} {HEIGHT(getattr(p, measure))}"
            for p in self.points
            if x.low <= p.threshold <= x.high
        ]
        return "M" + " L".join(steps) if steps else ""


def curve(decisions: Sequence[Decision]) -> Curve | None:
    """Returns the curve of the answers of one kind; ``None`` if none was given.

    Only answers that were given have a threshold. Of many points at most ``MAX_POINTS`` are kept,
    evenly spaced, the first and the last among them.
    """
    given = {d.score for d in decisions if d.predicted}
    points = [point for point in sweep(decisions) if point.threshold in given]
    if not points:
        return None
    kept = points
    if len(points) > MAX_POINTS:
        step = (len(points) - 1) / (MAX_POINTS - 1)
        kept = [points[round(i * step)] for i in range(MAX_POINTS)]
    return Curve(kept[::-1], best(points), points[-1])


def axis_of(curves: Iterable[Curve | None]) -> Axis:
    """Returns the horizontal axis of curves: probabilities from 0 to 1, other scores as they go."""
    thresholds = [point.threshold for curve in curves if curve for point in curve.points]
    if all(0 <= threshold <= 1 for threshold in thresholds):
        return UNIT
    return Axis(min(thresholds), max(thresholds), UNIT.start, UNIT.end)


def phases(time: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """Returns the seconds of the phases of a run that have a duration, and the seconds of all.

    >>> phases({"load_s": 1.0, "predict_s": 3.0, "preprocess_s": 9.0, "total_s": 4.0})
    ({'load': 1.0, 'predict': 3.0}, 4.0)
    """
    seconds = {
        name.removesuffix("_s").replace("_", " "): value
        for name, value in time.items()
        if value > 0 and name not in ("total_s", "preprocess_s")  # beside the phases
    }
    return seconds, max(time.get("total_s", 0.0), sum(seconds.values()))


def format_seconds(seconds: float) -> str:
    """Returns a duration.

    >>> format_seconds(0.25), format_seconds(83.2), format_seconds(754), format_seconds(7500)
    ('0.2 s', '83.2 s', '12 min 34 s', '2 h 5 min')
    """
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
