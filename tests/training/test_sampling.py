"""Sampling: full batches of windows of similar length, the same for the same seed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.training.job import TrainConfig
from nq.training.windows import BATCHES_SORTED_TOGETHER, batches, steps_after


@given(
    n=st.integers(0, 700),
    batch_size=st.integers(1, 9),
    epoch=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_batches_are_full_reproducible_and_hold_each_row_at_most_once(
    n: int, batch_size: int, epoch: int, seed: int
) -> None:
    n_pieces = np.random.default_rng(n).integers(5, 500, n)
    steps = batches(n_pieces, batch_size, epoch, seed)
    assert len(steps) == n // batch_size
    assert all(len(rows) == batch_size for rows in steps)
    rows = np.concatenate(steps) if steps else np.array([], int)
    assert len(set(rows.tolist())) == len(rows) and set(rows.tolist()) <= set(range(n))
    assert n - len(rows) < batch_size
    again = batches(n_pieces, batch_size, epoch, seed)
    assert all(np.array_equal(a, b) for a, b in zip(steps, again, strict=True))
    if len(steps) > 20:
        other = batches(n_pieces, batch_size, epoch + 1, seed)
        assert not all(np.array_equal(a, b) for a, b in zip(steps, other, strict=True))


def test_windows_of_a_batch_have_similar_lengths() -> None:
    n_pieces = np.random.default_rng(0).integers(5, 512, 16 * BATCHES_SORTED_TOGETHER * 3)
    spread = [np.ptp(n_pieces[rows]) for rows in batches(n_pieces, 16, 0, 0)]
    assert max(spread) < 60 and np.mean(spread) < 15


@pytest.mark.parametrize("done", [0, 7, 8, 12, 19])
def test_steps_after_an_interruption_are_the_same(done: int) -> None:
    n_pieces, config = np.full(50, 14), TrainConfig(batch_size=6, epochs=2.4, seed=1)
    steps = [rows.tolist() for rows in steps_after(0, n_pieces, config)]
    assert len(steps) == int(8 * 2.4)
    assert [rows.tolist() for rows in steps_after(done, n_pieces, config)] == steps[done:]
