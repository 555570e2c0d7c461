"""D-STACK's knee is the maximum that its derivation promises."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.planning.knee import Amdahl, fit

TIMES = st.floats(1e-2, 1e2)


@given(TIMES, TIMES)
def test_the_gain_is_largest_at_the_ratio(serial: float, parallel: float) -> None:
    law, best = Amdahl(serial, parallel), parallel / serial
    assert all(law.gain(best) >= law.gain(best * factor) for factor in (0.5, 0.9, 1.1, 2.0))
    assert abs(law.knee(most=20_000) - best) <= 1 or best < 1


@given(TIMES, TIMES, st.integers(1, 64))
def test_the_gain_is_the_derivative_of_the_efficiency(
    serial: float, parallel: float, units: int
) -> None:
    law = Amdahl(serial, parallel)
    seconds, step = law.seconds(units), 1e-6 * law.seconds(units)
    slope = (1 / ((seconds + step) * units) - 1 / (seconds * units)) / step
    assert law.gain(units) == pytest.approx(-slope, rel=1e-4)


@given(TIMES, TIMES)
def test_a_law_is_fitted_to_its_own_times(serial: float, parallel: float) -> None:
    law, units = Amdahl(serial, parallel), [1, 2, 4, 8]
    found = fit(units, [law.seconds(u) for u in units])
    assert found.serial_s == pytest.approx(serial, rel=1e-6, abs=1e-6)
    assert found.parallel_s == pytest.approx(parallel, rel=1e-6, abs=1e-6)


def test_noise_does_not_give_negative_times() -> None:
    law = fit([1, 2, 4], [1.0, 1.1, 1.2])
    assert law.parallel_s == 0.0
    assert law.serial_s > 0
    assert law.knee(most=8) == 1
    assert math.isfinite(law.gain(1))
