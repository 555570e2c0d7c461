"""Calibration against a slow, obvious version."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nq.evaluation.calibration import error_by_chance, expected_calibration_error, reliability

ANSWERS = st.lists(
    st.tuples(st.floats(0, 1) | st.integers(0, 20).map(lambda i: i / 20), st.booleans())
)


def slow_bins(answers: list[tuple[float, bool]], bins: int) -> list[tuple[int, float, float]]:
    """Count, mean and share right of each bin, one comparison at a time."""
    found = []
    for i in range(bins):
        last = i == bins - 1
        inside = [(p, r) for p, r in answers if i / bins <= p and (p < (i + 1) / bins or last)]
        n = len(inside)
        mean = math.fsum(p for p, _ in inside) / n if n else 0.0
        found.append((n, mean, sum(r for _, r in inside) / n if n else 0.0))
    return found


@given(ANSWERS, st.integers(1, 30))
@example([(1.0, True), (0.0, False)], 10).via("both ends")
def test_bins_and_error_are_those_of_the_slow_version(
    answers: list[tuple[float, bool]], bins: int
) -> None:
    probabilities, right = [p for p, _ in answers], [r for _, r in answers]
    slow = slow_bins(answers, bins)
    found = reliability(probabilities, right, bins)
    assert [(b.count, b.mean, b.right) for b in found] == slow
    assert [b.high for b in found[:-1]] == [b.low for b in found[1:]]
    total = len(answers)
    error = sum(n / total * abs(share - mean) for n, mean, share in slow if n)
    assert expected_calibration_error(probabilities, right, bins) == pytest.approx(error)
    assert 0 <= error <= 1


def test_what_is_said_comes_true() -> None:
    probabilities = [0.25] * 8 + [0.75] * 4
    right = [True, True] + [False] * 6 + [True, True, True, False]
    assert expected_calibration_error(probabilities, right) == 0
    assert expected_calibration_error([], []) == 0
    assert expected_calibration_error([1.0] * 4, [False] * 4) == 1


@pytest.mark.parametrize(
    ("probabilities", "right", "bins", "says"),
    [
        ([1.5], [True], 10, "lies in"),
        ([-0.1], [True], 10, "lies in"),
        ([math.nan], [True], 10, "got nan"),
        ([0.5], [], 10, "argument"),
        ([0.5], [True], 0, "at least 1"),
    ],
)
def test_what_is_no_probability(
    probabilities: list[float], right: list[bool], bins: int, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        reliability(probabilities, right, bins)


def test_chance_alone_makes_an_error_that_more_answers_make_smaller() -> None:
    """Of one bin with n answers of probability 1/2: the mean distance of a fair coin from it."""
    for n in (4, 100):
        binomial = [math.comb(n, k) / 2**n * abs(k / n - 0.5) for k in range(n + 1)]
        found = error_by_chance([0.5] * n, draws=2000)
        assert found == pytest.approx(math.fsum(binomial), rel=0.06)
        assert found == error_by_chance([0.5] * n, draws=2000)
