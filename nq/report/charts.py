"""The numbers of the charts, and where they are drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nq.evaluation.nq_eval import Decision, Point, best, sweep

MAX_POINTS = 160


@dataclass(frozen=True, slots=True)
class Plot:
    """The area of a chart in pixels; x is from ``low`` to ``high``, y from 0 to 1."""

    low: float = 0.0
    high: float = 1.0
    width: float = 244.0
    height: float = 158.0
    left: float = 32.0
    top: float = 10.0

    def x(self, value: float) -> float:
        """Returns the horizontal coordinate of a value.

        >>> Plot().x(0.5)
        154.0
        """
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.left + self.width * min(max(share, 0.0), 1.0), 1)

    def y(self, value: float) -> float:
        """Returns the vertical coordinate of a value, which grows upwards.

        >>> Plot().y(1.0)
        10.0
        """
        return round(self.top + self.height * (1 - min(max(value, 0.0), 1.0)), 1)


@dataclass(frozen=True, slots=True)
class Curve:
    """Precision, recall and F1 of the answers of one kind over the threshold of their scores.

    Args:
        points: by threshold, ascending.
        best: the point with the highest F1.
        given: the point of all answers that were given.
    """

    points: Sequence[Point]
    best: Point
    given: Point

    def path(self, plot: Plot, measure: str) -> str:
        """Returns the line of a measure as the commands of an SVG path."""
        steps = [
            f"{plot.x(p.threshold)} {plot.y(getattr(p, measure))}"
            for p in self.points
            if plot.low <= p.threshold <= plot.high
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


def plot_of(curves: Iterable[Curve | None]) -> Plot:
    """Returns the area of curves: probabilities from 0 to 1, other scores as far as they go."""
    thresholds = [point.threshold for curve in curves if curve for point in curve.points]
    if all(0 <= threshold <= 1 for threshold in thresholds):
        return Plot()
    return Plot(min(thresholds), max(thresholds))


def phases(time: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """Returns the seconds of the phases of a run that have a duration, and the seconds of all.

    Args:
        time: seconds by name, as in ``metrics.json``.

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
