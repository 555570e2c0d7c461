"""DISCO's balance is where both of its times cross."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.planning.disco import balance, computing_seconds, sending_seconds

POSITIVE = st.floats(0.1, 10)
DEVICES = st.integers(2, 16)


@given(POSITIVE, POSITIVE, POSITIVE, DEVICES, POSITIVE)
def test_both_times_are_equal_at_the_balance(
    size: float, rate: float, flop: float, devices: int, speed: float
) -> None:
    sparsity = balance(size, rate, flop, devices, speed)
    assert 0 <= sparsity < 1
    sending = sending_seconds(size, rate, sparsity)
    computing = computing_seconds(flop, devices, speed, sparsity)
    if sparsity:
        assert sending == pytest.approx(computing, rel=1e-6)
    else:
        assert sending <= computing * (1 + 1e-9)


@given(POSITIVE, POSITIVE, POSITIVE, DEVICES, POSITIVE)
def test_the_balance_is_the_published_equation(
    size: float, rate: float, flop: float, devices: int, speed: float
) -> None:
    ratio = devices * speed / flop * (size / rate)
    expected = devices * (ratio - 1) / (devices * (ratio - 1) + 1) if ratio > 1 else 0.0
    assert balance(size, rate, flop, devices, speed) == pytest.approx(expected, abs=1e-9)
