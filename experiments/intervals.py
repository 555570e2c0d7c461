"""The statistics of the studies: order of the rounds, intervals of ratios, verdicts."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

ROUNDS, DROPPED = 12, 2
"""Rounds of a study, and how many of the first ones do not count."""
LEVEL, RESAMPLES = 0.9, 2000
CONFIRMED = "confirmed"
REFUTED = "refuted"
UNDECIDED = "undecided"
NOT_TESTABLE = "not testable here"

T = TypeVar("T")


@dataclass(frozen=True)
class Interval:
    """The median of ratios with its interval, infinitely long if there are too few ratios."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"{self.median:.2f}"
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def rotated(items: Sequence[T], number: int) -> list[T]:
    """Returns the items in the order of a round, so that each is first equally often.

    >>> rotated("abc", 1)
    ['b', 'c', 'a']
    """
    start = number % len(items)
    return [*items[start:], *items[:start]]


def kept(values: Sequence[T]) -> Sequence[T]:
    """Returns the values of the rounds that count; the last one if there are too few.

    >>> kept([5, 4, 3, 2]), kept([5])
    ([3, 2], [5])
    """
    return values[DROPPED:] or values[-1:]


def middle(values: Sequence[float]) -> float:
    """Returns the median of the values of the rounds that count."""
    return float(statistics.median(kept(values)))


def ratios(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Returns value ÷ other of each round that counts."""
    return [value / other for value, other in zip(kept(values), kept(others), strict=True)]


def interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Returns the median of one value a round with its bootstrap interval, by percentiles.

    The interval has the share ``level`` of the resampled medians; with one value it has no ends.
    """
    median = float(statistics.median(values))
    if len(values) < 2:
        return Interval(median, -math.inf, math.inf)
    import numpy as np
    from scipy.stats import bootstrap

    result = bootstrap(
        (np.asarray(values, float),),
        np.median,
        n_resamples=RESAMPLES,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    low, high = result.confidence_interval
    return Interval(median, float(low), float(high))


def verdict(measured: Interval, above: float = -math.inf, below: float = math.inf) -> str:
    """Returns whether an interval confirms that a ratio is between two bounds.

    >>> verdict(Interval(1.1, 1.02, 1.2), above=1), verdict(Interval(1.1, 0.98, 1.2), above=1)
    ('confirmed', 'undecided')
    >>> verdict(Interval(0.9, 0.8, 1.0), above=1)
    'refuted'
    """
    if measured.low > above and measured.high < below:
        return CONFIRMED
    if measured.high <= above or measured.low >= below:
        return REFUTED
    return UNDECIDED


def tested(measured: Iterable[Interval | None], **bounds: float) -> str:
    """Returns the verdict of a claim about the ratios of several rows; ``None`` has none."""
    return overall(verdict(ratio, **bounds) for ratio in measured if ratio is not None)


def overall(verdicts: Iterable[str]) -> str:
    """Returns the verdict of a claim about several rows: refuted by one, confirmed by all.

    >>> overall(["confirmed", "undecided"]), overall([])
    ('undecided', 'not testable here')
    """
    known = [text for text in verdicts if text in (CONFIRMED, REFUTED, UNDECIDED)]
    if not known:
        return NOT_TESTABLE
    if REFUTED in known:
        return REFUTED
    return CONFIRMED if set(known) == {CONFIRMED} else UNDECIDED
