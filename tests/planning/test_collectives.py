"""The ring collectives against a ring of arrays that is stepped through."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.planning.collectives import Link, all_reduce
from nq.records import FloatArray


def ring_all_reduce(values: list[FloatArray]) -> tuple[list[FloatArray], int, int]:
    """Returns the sums, the number of steps and the numbers that were sent, over a ring."""
    p = len(values)
    parts = [list(np.split(v.copy(), p)) for v in values]
    sent = 0
    for add in (True, False):  # reduce-scatter, all-gather
        for step in range(p - 1):
            moving = [(i, (i - step + (not add)) % p) for i in range(p)]
            messages = [(i, k, parts[i][k].copy()) for i, k in moving]
            for i, k, message in messages:
                after = (i + 1) % p
                parts[after][k] = parts[after][k] + message if add else message
                sent += len(message)
    return [np.concatenate(own) for own in parts], 2 * (p - 1), sent


@given(st.integers(2, 6), st.integers(1, 4))
def test_all_reduce_costs_what_a_ring_sends(devices: int, size: int) -> None:
    draw = np.random.default_rng(devices)
    values = [draw.normal(size=size * devices).astype(np.float32) for _ in range(devices)]
    sums, steps, sent = ring_all_reduce(values)
    assert all(np.allclose(own, sum(values), atol=1e-5) for own in sums)
    cost = all_reduce(size * devices, devices, Link(bytes_per_s=2.0, latency_s=3.0))
    assert cost.moved_bytes == pytest.approx(sent)
    assert cost.seconds == pytest.approx(steps * (3.0 + size / 2.0))
