"""The numbers of the charts, and where they are drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nq.evaluation.nq_eval import Decision, Point, best, sweep

MAX_POINTS = 160
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
TOTAL, BESIDE = "total_s", ("preprocess_s",)
"""Names of the seconds that are no phase: of all, and of work beside the phases."""


@dataclass(frozen=True, slots=True)
class Plot:
    """The area of a chart; values of y are from 0 to 1.

    Args:
        low, high: of the values of x.
        width, height: of the area.
        left, top: of its first corner.
    """

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

    def ticks(self) -> list[float]:
        """Returns the values of x that are labelled."""
        return [self.low + share * (self.high - self.low) for share in TICKS]


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

    Only answers that were given have a threshold: those below that of the run are not known.
    """
    given = {d.score for d in decisions if d.predicted}
    points = [point for point in sweep(decisions) if point.threshold in given]
    if not points:
        return None
    return Curve(_thinned(points)[::-1], best(points), points[-1])


def _thinned(points: Sequence[Point]) -> list[Point]:
    """Returns at most ``MAX_POINTS`` points with the first and the last, evenly spaced."""
    if len(points) <= MAX_POINTS:
        return list(points)
    step = (len(points) - 1) / (MAX_POINTS - 1)
    return [points[round(i * step)] for i in range(MAX_POINTS)]


def plot_of(curves: Iterable[Curve | None]) -> Plot:
    """Returns the area of curves: probabilities from 0 to 1, other scores as far as they go."""
    thresholds = [point.threshold for curve in curves if curve for point in curve.points]
    if all(0 <= threshold <= 1 for threshold in thresholds):
        return Plot()
    return Plot(min(thresholds), max(thresholds))


@dataclass(frozen=True, slots=True)
class Phase:
    """The seconds of one phase, and their share of the total."""

    name: str
    seconds: float
    share: float


def phases(time: Mapping[str, float]) -> tuple[list[Phase], float]:
    """Returns the phases of a run with a duration, and the seconds of all.

    Args:
        time: seconds by name, as in ``metrics.json``; other names are left out.

    >>> phases({"load_s": 1.0, "predict_s": 3.0, "preprocess_s": 9.0, "total_s": 4.0})[0][1]
    Phase(name='predict', seconds=3.0, share=0.75)
    """
    seconds = {
        name: float(value) for name, value in time.items() if name.endswith("_s") and value > 0
    }
    total = seconds.pop(TOTAL, 0.0)
    for name in BESIDE:
        seconds.pop(name, None)
    total = max(total, sum(seconds.values()))
    named = {name.removesuffix("_s").replace("_", " "): value for name, value in seconds.items()}
    return [Phase(name, value, value / total) for name, value in named.items()], total
