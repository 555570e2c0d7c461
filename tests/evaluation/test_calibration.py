"""Tests of the calibration error, against a slow implementation of its definition."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nq.evaluation.calibration import BINS, area_under_roc, expected_calibration_error, reliability

ANSWERS = st.lists(
    st.tuples(st.floats(0, 1) | st.integers(0, 20).map(lambda i: i / 20), st.booleans())
)


def slow_bins(answers: list[tuple[float, bool]], bins: int) -> list[tuple[int, float, float]]:
    """Returns count, mean probability and share correct of each bin, by plain comparisons."""
    rows = []
    for i in range(bins):
        last = i == bins - 1
        inside = [(p, r) for p, r in answers if i / bins <= p and (p < (i + 1) / bins or last)]
        n = len(inside)
        mean = math.fsum(p for p, _ in inside) / n if n else 0.0
        rows.append((n, mean, sum(r for _, r in inside) / n if n else 0.0))
    return rows


@given(ANSWERS, st.integers(1, 30))
@example([(1.0, True), (0.0, False)], 10).via("both ends")
def test_bins_and_error_equal_the_slow_implementation(
    answers: list[tuple[float, bool]], bins: int
) -> None:
    probabilities, correct = [p for p, _ in answers], [r for _, r in answers]
    slow = slow_bins(answers, bins)
    fast = reliability(probabilities, correct, bins)
    assert [b.count for b in fast] == [n for n, _, _ in slow]
    assert [b.mean for b in fast] == pytest.approx([mean for _, mean, _ in slow])
    assert [b.right for b in fast] == pytest.approx([share for _, _, share in slow])
    assert [b.high for b in fast[:-1]] == [b.low for b in fast[1:]]
    error = sum(n / len(answers) * abs(r - p) for n, p, r in slow_bins(answers, BINS) if n)
    assert expected_calibration_error(probabilities, correct) == pytest.approx(error)
    assert 0 <= error <= 1


@given(ANSWERS)
def test_the_area_under_the_roc_is_the_share_of_ordered_pairs(
    answers: list[tuple[float, bool]],
) -> None:
    pairs = [(p, q) for p, r in answers if r for q, s in answers if not s]
    slow = sum((p > q) + (p == q) / 2 for p, q in pairs) / len(pairs) if pairs else 0.5
    fast = area_under_roc([p for p, _ in answers], [r for _, r in answers])
    assert fast == pytest.approx(slow)
