"""How far probabilities can be believed: reliability bins and the expected calibration error.

Answers that are given with probability 0.8 should be right four times out of five. The bins
have equal width; bin i of n holds the probabilities in [i/n, (i+1)/n), the last one 1 as well.

    ECE = sum over bins of  count / total * |share right - mean probability|

Source: Guo et al. 2017, On Calibration of Modern Neural Networks, section 2.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """The answers whose probability lies in [``low``, ``high``).

    ``mean`` is their mean probability and ``right`` the share that is right; both are 0 where
    ``count`` is.
    """

    low: float
    high: float
    count: int
    mean: float
    right: float

    @property
    def gap(self) -> float:
        """By how much the probabilities promise too much (above 0) or too little."""
        return self.mean - self.right


def reliability(
    probabilities: Sequence[float], right: Sequence[bool], bins: int = BINS
) -> list[Bin]:
    """Sorts answers into bins by their probability.

    Args:
        probabilities: ``[N]`` of the answers being right, in [0, 1].
        right: ``[N]`` whether they are.
        bins: how many.

    Raises:
        ValueError: a probability is none, the lengths differ, or there is no bin.

    >>> [(b.low, b.count, b.mean, b.right) for b in reliability([0.1, 0.5, 1], [False, 0, 1], 2)]
    [(0.0, 1, 0.1, 0.0), (0.5, 2, 0.75, 0.5)]
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    edges = [i / bins for i in range(bins + 1)]
    inside: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for probability, is_right in zip(probabilities, right, strict=True):
        if not 0 <= probability <= 1:
            raise ValueError(f"a probability lies in [0, 1], got {probability}")
        inside[min(bisect_right(edges, probability), bins) - 1].append((probability, is_right))
    return [
        Bin(
            edges[i],
            edges[i + 1],
            len(found),
            math.fsum(p for p, _ in found) / max(len(found), 1),
            sum(r for _, r in found) / max(len(found), 1),
        )
        for i, found in enumerate(inside)
    ]


def expected_calibration_error(
    probabilities: Sequence[float], right: Sequence[bool], bins: int = BINS
) -> float:
    """The mean gap of the bins, each weighed by its count; 0 without any answer.

    >>> expected_calibration_error([0.25, 0.75], [True, True], bins=2)
    0.5
    """
    found = reliability(probabilities, right, bins)
    total = sum(b.count for b in found)
    return math.fsum(b.count / total * abs(b.gap) for b in found if b.count)


def error_by_chance(probabilities: Sequence[float], bins: int = BINS, draws: int = 200) -> float:
    """The calibration error to expect of probabilities that are exactly right.

    It is not 0: in a bin of few answers the share that is right strays from the mean. The mean of
    so many seeded draws.

    >>> error_by_chance([0.0, 1.0] * 10), round(error_by_chance([0.5]), 1)
    (0.0, 0.5)
    """
    draw = random.Random(0)
    errors = [
        expected_calibration_error(probabilities, [draw.random() < p for p in probabilities], bins)
        for _ in range(draws)
    ]
    return math.fsum(errors) / draws
