"""Sampling: full batches of like windows, groups of one question, the same for the same seed."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nq.config import TrainConfig
from nq.model.sampling import (
    BATCHES_SORTED_TOGETHER,
    Sampling,
    batches,
    drawn_groups,
    steps_per_epoch,
)
from nq.model.training_windows import TrainingWindows
from nq.records import IntArray
from tests import tiny


@given(
    n=st.integers(0, 700),
    batch_size=st.integers(1, 9),
    epoch=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_batches_are_full_alike_and_take_each_row_at_most_once(
    n: int, batch_size: int, epoch: int, seed: int
) -> None:
    n_pieces = np.random.default_rng(n).integers(5, 500, n)
    found = batches(n_pieces, batch_size, epoch, seed)
    assert len(found) == steps_per_epoch(n, batch_size)
    assert all(len(rows) == batch_size for rows in found)
    rows = np.concatenate(found) if found else np.array([], int)
    assert len(set(rows.tolist())) == len(rows) and set(rows.tolist()) <= set(range(n))
    assert n - len(rows) < batch_size
    again = batches(n_pieces, batch_size, epoch, seed)
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))
    if len(found) > 20:
        other = batches(n_pieces, batch_size, epoch + 1, seed)
        assert not all(np.array_equal(a, b) for a, b in zip(found, other, strict=True))


def test_windows_of_a_batch_have_like_lengths() -> None:
    n_pieces = np.random.default_rng(0).integers(5, 512, 16 * BATCHES_SORTED_TOGETHER * 3)
    spread = [np.ptp(n_pieces[rows]) for rows in batches(n_pieces, 16, 0, 0)]
    assert max(spread) < 60 and np.mean(spread) < 15


def test_rows_left_out_are_other_ones_in_each_epoch_whatever_their_length() -> None:
    n_pieces = np.arange(63)
    left = [set(range(63)) - set(np.concatenate(batches(n_pieces, 8, e, 0))) for e in range(40)]
    assert all(len(rows) == 7 for rows in left)
    assert len(set().union(*left)) > 55


# --- groups


@st.composite
def pages(draw: st.DrawFn) -> tuple[IntArray, IntArray]:
    """The question of each window and whether the window holds the answer."""
    n = draw(st.integers(1, 60))
    questions = draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))
    positive = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    return np.unique(questions, return_inverse=True)[1], np.array(positive)


@given(pages(), st.integers(2, 6), st.integers(0, 3), st.integers(0, 99))
def test_each_answer_leads_a_group_of_its_own_question(
    page: tuple[IntArray, IntArray], size: int, epoch: int, seed: int
) -> None:
    questions, positive = page
    groups = drawn_groups(questions, positive, size, epoch, seed)
    assert groups.shape[1] == size
    assert (questions[groups] == questions[groups[:, :1]]).all()
    leaders = groups[:, 0].tolist()
    answered = set(questions[positive].tolist())
    assert sorted(i for i in leaders if positive[i]) == np.flatnonzero(positive).tolist()
    assert {int(questions[i]) for i in leaders if not positive[i]} == set(questions) - answered
    assert len(leaders) == positive.sum() + len(set(questions.tolist()) - answered)
    for group in groups:
        windows = int((questions == questions[group[0]]).sum())
        assert len(set(group.tolist())) == min(size, windows)


def test_another_epoch_draws_other_windows() -> None:
    questions, positive = np.zeros(50, int), np.arange(50) == 7
    drawn = [drawn_groups(questions, positive, 4, epoch, 0)[0].tolist() for epoch in range(5)]
    assert len({tuple(group) for group in drawn}) == 5
    assert drawn[0] == drawn_groups(questions, positive, 4, 0, 0)[0].tolist()


@given(st.integers(1, 90), st.integers(1, 4), st.integers(1, 4), st.integers(0, 9))
def test_batches_keep_groups_together(n: int, size: int, per_step: int, seed: int) -> None:
    n_pieces = np.random.default_rng(seed).integers(5, 500, n * size)
    groups = np.random.default_rng(n).permutation(n * size).reshape(n, size)
    found = batches(n_pieces, per_step * size, 0, seed, groups)
    assert len(found) == steps_per_epoch(n, per_step)
    kept = [tuple(group) for rows in found for group in rows.reshape(-1, size).tolist()]
    assert len(set(kept)) == len(kept) and set(kept) <= set(map(tuple, groups.tolist()))


def windows_of(pages: int, per_page: int) -> TrainingWindows:
    """Pages whose first window has the answer; each page has a question of its own."""
    found = tiny.rows([14] * (pages * per_page), 16)
    found["input_ids"][:, 1 : tiny.N_QUERY - 1] = np.repeat(np.arange(pages) + 5, per_page)[:, None]
    kinds = np.where(np.arange(pages * per_page) % per_page == 0, 3, 0)
    targets = {"start_positions": kinds, "end_positions": kinds, "answer_types": kinds}
    return TrainingWindows.from_columns({**found, **targets})


def test_windows_are_told_apart_by_their_question() -> None:
    assert windows_of(5, 3).questions().tolist() == np.repeat(np.arange(5), 3).tolist()


def test_a_step_goes_on_where_the_steps_before_it_ended() -> None:
    windows = windows_of(10, 5)
    config = TrainConfig(batch_size=6, group=3, epochs=2.4, seed=1)
    sampling = Sampling(windows, config)
    steps = list(sampling.after(0))
    assert sampling.total == len(steps) == 12
    for (step, rows), (again, same) in zip(steps[7:], sampling.after(7), strict=True):
        assert step == again and rows.tolist() == same.tolist()
    for _, rows in steps:
        assert (rows[::3] % 5 == 0).all() and (rows // 5 == np.repeat(rows[::3] // 5, 3)).all()
    assert Sampling(windows, dataclasses.replace(config, group=1)).total == int(8 * 2.4)
