"""Tests that batches contain every window once, in few shapes that fit."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nq.inference.batches import (
    FITTED_STEP,
    LENGTHS,
    MIN_PIECES,
    Batch,
    Shape,
    by_length,
    fitted,
    in_order,
    rounded_up,
    without_empty_rows,
)
from nq.records import IntArray

SHAPES = st.builds(Shape, st.integers(1, 40), st.integers(1, 600))


@st.composite
def windows(draw: st.DrawFn) -> tuple[IntArray, Shape]:
    """Numbers of pieces of windows, many of them full, and the shape of the longest batch."""
    shape = draw(SHAPES)
    lengths = st.one_of(st.just(shape.length), st.integers(0, shape.length))
    return np.array(draw(st.lists(lengths, max_size=200)), np.int64), shape


def numbers(batches: list[Batch]) -> list[int]:
    return [row for batch in batches for row in batch.rows.tolist()]


@given(st.integers(0, 200), SHAPES)
def test_batches_in_order_have_one_shape_and_the_rows_in_order(n: int, shape: Shape) -> None:
    batches = in_order(n, shape)
    assert numbers(batches) == list(range(n))
    assert all(0 < len(b.rows) <= shape.batch_size and b.shape == shape for b in batches)


@given(windows())
def test_batches_by_length_are_full_of_similar_size_and_fit_their_windows(
    some: tuple[IntArray, Shape],
) -> None:
    n_pieces, shape = some
    batches = by_length(n_pieces, shape)
    assert sorted(numbers(batches)) == list(range(len(n_pieces)))
    assert all(len(batch.rows) == batch.shape.batch_size for batch in batches[:-1])
    most = max(shape.batch_size * shape.length, MIN_PIECES)
    for batch in batches:
        assert 0 < len(batch.rows) <= batch.shape.batch_size
        assert n_pieces[batch.rows].max() <= batch.shape.length <= shape.length
        assert batch.shape.full == bool((n_pieces[batch.rows] == batch.shape.length).all())
        assert most - batch.shape.length < batch.shape.batch_size * batch.shape.length <= most
    lengths = [batch.shape.length for batch in batches]
    assert lengths == sorted(lengths, reverse=True)


@given(windows())
def test_fitted_batches_hold_little_more_than_their_windows(some: tuple[IntArray, Shape]) -> None:
    n_pieces, shape = some
    batches = fitted(n_pieces, shape)
    assert sorted(numbers(batches)) == list(range(len(n_pieces)))
    for batch in batches:
        longest, length = n_pieces[batch.rows].max(), batch.shape.length
        assert longest <= length <= min(shape.length, max(1, longest) + FITTED_STEP - 1)
        assert len(batch.rows) == batch.shape.batch_size and not batch.shape.full
        assert batch.shape.batch_size * length <= shape.batch_size * shape.length


@given(windows())
def test_batches_without_empty_rows_have_less_than_twice_their_windows(
    some: tuple[IntArray, Shape],
) -> None:
    plan = by_length(*some)
    for before, after in zip(plan, without_empty_rows(plan), strict=True):
        size = after.shape.batch_size
        assert after.rows is before.rows and len(after.rows) <= size < 2 * len(after.rows)
        assert size.bit_count() == 1 or size == before.shape.batch_size
        assert replace(before.shape, batch_size=size) == after.shape


@given(st.integers(1, 1200))
def test_there_are_few_lengths_that_fit_every_window(longest: int) -> None:
    lengths = {rounded_up(n, longest) for n in range(longest + 1)}
    assert len(lengths) <= LENGTHS and max(lengths) == longest
    assert all(n <= rounded_up(n, longest) for n in range(longest + 1))
