"""Batches hold every window once, in few shapes that fit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nq.inference.batches import LENGTHS, MIN_PIECES, Batch, Shape, by_length, in_order, rounded_up
from nq.records import IntArray

SHAPES = st.builds(Shape, st.integers(1, 40), st.integers(1, 600))


@st.composite
def windows(draw: st.DrawFn) -> tuple[IntArray, Shape]:
    """Pieces of each of some windows, many of them full, and the shape of the largest batch."""
    shape = draw(SHAPES)
    lengths = st.one_of(st.just(shape.length), st.integers(0, shape.length))
    return np.array(draw(st.lists(lengths, max_size=200)), np.int64), shape


def assert_every_row_once(found: list[Batch], n: int) -> None:
    rows = [row for batch in found for row in batch.rows.tolist()]
    assert sorted(rows) == list(range(n))
    assert all(0 < len(batch.rows) <= batch.shape.batch_size for batch in found)


@given(st.integers(0, 200), SHAPES)
def test_in_order_is_in_order(n: int, shape: Shape) -> None:
    found = in_order(n, shape)
    assert_every_row_once(found, n)
    assert [row for batch in found for row in batch.rows.tolist()] == list(range(n))
    assert {batch.shape for batch in found} <= {shape}


@given(windows())
def test_by_length_every_window_fits_once(some: tuple[IntArray, Shape]) -> None:
    n_pieces, shape = some
    found = by_length(n_pieces, shape)
    assert_every_row_once(found, len(n_pieces))
    for batch in found:
        assert n_pieces[batch.rows].max() <= batch.shape.length <= shape.length
        assert batch.shape.full == bool((n_pieces[batch.rows] == batch.shape.length).all())


@given(windows())
def test_by_length_batches_are_full_and_like_each_other(some: tuple[IntArray, Shape]) -> None:
    n_pieces, shape = some
    found = by_length(n_pieces, shape)
    most = max(shape.batch_size * shape.length, MIN_PIECES)
    for batch in found:
        pieces = batch.shape.batch_size * batch.shape.length
        assert most - batch.shape.length < pieces <= most
    assert all(len(batch.rows) == batch.shape.batch_size for batch in found[:-1])
    lengths = [batch.shape.length for batch in found]
    assert lengths == sorted(lengths, reverse=True)


@given(st.integers(1, 1200))
def test_lengths_are_few(longest: int) -> None:
    lengths = {rounded_up(n, longest) for n in range(longest + 1)}
    assert len(lengths) <= LENGTHS and max(lengths) == longest
    assert all(n <= rounded_up(n, longest) for n in range(longest + 1))
