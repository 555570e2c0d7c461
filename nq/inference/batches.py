"""Batching: which windows are computed together, and in which static shape."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nq.records import IntArray

LENGTH_STEP = 64
LENGTHS = 4
FITTED_STEP = 32
MIN_PIECES = 4096
"""Pieces in a batch at least; smaller ones leave much of a CPU's speed in bfloat16 unused."""


@dataclass(frozen=True)
class Shape:
    """A static shape, for which a step is compiled; if it is ``full``, no position is padding."""

    batch_size: int
    length: int
    full: bool = False


@dataclass(frozen=True, eq=False)
class Batch:
    """Row numbers of windows, at most ``shape.batch_size``, and the shape they are padded to."""

    rows: IntArray
    shape: Shape


def in_order(n_windows: int, shape: Shape) -> list[Batch]:
    """Returns batches of one shape, with the windows in order."""
    rows = np.arange(n_windows)
    size = shape.batch_size
    return [Batch(rows[i : i + size], shape) for i in range(0, n_windows, size)]


def by_length(n_pieces: IntArray, shape: Shape, least: int = MIN_PIECES) -> list[Batch]:
    """Returns batches of windows of similar length, by their numbers of pieces, the longest first.

    Each has about as many pieces as ``shape``, the longest one, or ``least``.

    >>> [(b.rows.tolist(), b.shape.length, b.shape.full) for b in
    ...  by_length(np.array([70, 256, 256]), Shape(2, 256))]
    [([1, 2, 0], 256, False)]
    """
    order = np.argsort(-n_pieces, kind="stable")
    result = list[Batch]()
    first = 0
    while first < len(order):
        length = rounded_up(int(n_pieces[order[first]]), shape.length)
        size = max(shape.batch_size * shape.length, least) // length
        rows = order[first : first + size]
        full = bool(n_pieces[rows[-1]] == length)
        result.append(Batch(rows, Shape(size, length, full)))
        first += size
    return result


def fitted(n_pieces: IntArray, shape: Shape) -> list[Batch]:
    """Returns the batches of ``by_length`` in shapes of just their windows, of any batch size.

    >>> [(b.rows.tolist(), b.shape) for b in fitted(np.array([70, 40]), Shape(8, 512))]
    [([0, 1], Shape(batch_size=2, length=96, full=False))]
    """
    plan = by_length(n_pieces, shape, least=0)
    steps = [max(1, -(-int(n_pieces[batch.rows[0]]) // FITTED_STEP)) for batch in plan]
    return [
        Batch(batch.rows, Shape(len(batch.rows), min(n * FITTED_STEP, shape.length)))
        for batch, n in zip(plan, steps, strict=True)
    ]


def by_own_length(n_pieces: IntArray, shape: Shape, lengths: Sequence[int]) -> list[Batch]:
    """Returns batches of texts whose padded length depends on each text alone, the longest first.

    That is the first of ``lengths``, ascending, that has room for it, at most the length of
    ``shape``. A batch has at most as many pieces as ``shape``.

    >>> [(b.rows.tolist(), b.shape.length) for b in
    ...  by_own_length(np.array([20, 5, 16, 70]), Shape(2, 96), [16, 32, 64])]
    [([3], 96), ([0], 32), ([1, 2], 16)]
    """
    possible = np.array([*(n for n in lengths if n < shape.length), shape.length])
    padded = possible[np.searchsorted(possible, n_pieces)]
    result = list[Batch]()
    for length in np.unique(padded)[::-1].tolist():
        rows = np.flatnonzero(padded == length)
        size = max(1, shape.batch_size * shape.length // length)
        for first in range(0, len(rows), size):
            result.append(Batch(rows[first : first + size], Shape(size, length)))
    return result


def of_size(plan: list[Batch]) -> list[Batch]:
    """Returns batches whose shapes have just as many rows as there are."""
    return [replace(one, shape=replace(one.shape, batch_size=len(one.rows))) for one in plan]


def without_empty_rows(plan: list[Batch]) -> list[Batch]:
    """Returns batches with as few rows as a power of two allows, so that there are few shapes.

    >>> [b.shape.batch_size for b in without_empty_rows(in_order(11, Shape(8, 512)))]
    [8, 4]
    """
    sizes = [min(b.shape.batch_size, 1 << (len(b.rows) - 1).bit_length()) for b in plan]
    return [
        replace(batch, shape=replace(batch.shape, batch_size=size))
        for batch, size in zip(plan, sizes, strict=True)
    ]


def rounded_up(length: int, longest: int) -> int:
    """Returns the smallest of a few lengths up to ``longest`` that fits ``length`` pieces.

    >>> [rounded_up(n, 512) for n in (0, 128, 129, 511)], rounded_up(70, 100)
    ([128, 128, 256, 512], 100)
    """
    step = -(-longest // (LENGTHS * LENGTH_STEP)) * LENGTH_STEP
    return min(max(-(-length // step), 1) * step, longest)
