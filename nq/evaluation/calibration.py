"""Calibration of probabilities: reliability bins and the expected calibration error (ECE).

Of the answers with probability 0.8, four out of five should be correct. The bins have equal width;
bin i of n contains the probabilities in [i/n, (i+1)/n), the last one 1 as well.

    ECE = sum over bins of  count / total * |share correct - mean probability|

Source: Guo et al. 2017, On Calibration of Modern Neural Networks, section 2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers by probability: their mean probability, and the share that is right; else both 0."""

    low: float
    high: float
    count: int
    mean: float
    right: float


def reliability(
    probabilities: Sequence[float],
    correct: Sequence[bool],
    bins: int = BINS,
) -> list[Bin]:
    """Returns bins of N answers by the probability that they are correct, in [0, 1].

    >>> [(b.low, b.count, b.mean, b.right) for b in reliability([0.1, 0.5, 1], [False, 0, 1], 2)]
    [(0.0, 1, 0.1, 0.0), (0.5, 2, 0.75, 0.5)]
    """
    edges = np.arange(bins + 1) / bins
    number = np.minimum(np.searchsorted(edges, probabilities, "right"), bins) - 1
    counts = np.bincount(number, minlength=bins)
    sums = (np.bincount(number, values, bins) for values in (probabilities, correct))
    columns = edges[:-1], edges[1:], counts, *(total / np.maximum(counts, 1) for total in sums)
    return [Bin(*row) for row in zip(*map(np.ndarray.tolist, columns), strict=True)]


def expected_calibration_error(
    probabilities: Sequence[float],
    correct: Sequence[bool],
) -> float:
    """Returns the mean absolute gap of the bins, weighted by count; 0 without answers.

    >>> expected_calibration_error([0.25, 0.75], [True, True])
    0.5
    """
    total = len(probabilities)
    by_bin = reliability(probabilities, correct)
    return math.fsum(b.count / total * abs(b.mean - b.right) for b in by_bin if b.count)


def area_under_roc(scores: Sequence[float], correct: Sequence[bool]) -> float:
    """Returns the share of pairs of a right and a wrong answer whose right one scores higher.

    Equal scores count as half a pair; without a right or a wrong answer it is 0.5.

    >>> area_under_roc([0.9, 0.4, 0.4, 0.1], [True, True, False, False])
    0.875
    """
    from scipy.stats import mannwhitneyu

    right = [score for score, is_correct in zip(scores, correct, strict=True) if is_correct]
    wrong = [score for score, is_correct in zip(scores, correct, strict=True) if not is_correct]
    if not right or not wrong:
        return 0.5
    wins = mannwhitneyu(right, wrong, method="asymptotic").statistic
    return float(wins) / (len(right) * len(wrong))
