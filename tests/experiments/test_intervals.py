"""The statistics of the studies against slower truths."""

import statistics
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.intervals import (
    CONFIRMED,
    REFUTED,
    UNDECIDED,
    Interval,
    interval,
    overall,
    verdict,
)

NUMBERS = st.floats(0.01, 100)


@pytest.mark.parametrize("values", [(4.0, 1.0, 2.0), (0.9, 1.0, 1.1, 1.05, 3.0)])
def test_the_interval_is_that_of_all_possible_resamples(values: tuple[float, ...]) -> None:
    medians = [statistics.median(some) for some in product(values, repeat=len(values))]
    low, high = np.quantile(medians, [0.05, 0.95], method="inverted_cdf")
    found = interval(values)
    assert found.median == statistics.median(values)
    assert (found.low, found.high) == pytest.approx((low, high))


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_a_verdict_is_that_of_every_value_of_the_interval(
    low: float, high: float, inside: float, above: float, below: float
) -> None:
    low, high = sorted((low, high))
    points = [low, high, *np.linspace(low, high, 50), min(max(inside, low), high)]
    agree = [above < point < below for point in points]
    found = verdict(Interval(statistics.mean((low, high)), low, high), above, below)
    if found == CONFIRMED:
        assert all(agree)
    elif found == REFUTED:
        assert not any(agree)
    else:
        assert not all(agree)


@given(st.lists(st.sampled_from([CONFIRMED, REFUTED, UNDECIDED]), min_size=1))
def test_one_row_refutes_and_all_confirm(verdicts: list[str]) -> None:
    expected = UNDECIDED
    if any(text == REFUTED for text in verdicts):
        expected = REFUTED
    elif all(text == CONFIRMED for text in verdicts):
        expected = CONFIRMED
    assert overall(verdicts) == overall([*verdicts, "source only"]) == expected
