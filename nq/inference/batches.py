"""windows -> batches: which windows are computed together, in which shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nq.records import IntArray

LENGTH_STEP = 64
LENGTHS = 4
MIN_PIECES = 4096
"""In a batch at least: small ones leave much of a CPU's speed in bfloat16 unused."""


@dataclass(frozen=True)
class Shape:
    """A static shape, for which a step is compiled.

    Args:
        batch_size: windows.
        length: pieces in each.
        full: every position holds a piece.
    """

    batch_size: int
    length: int
    full: bool = False


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of a table of windows, at most ``shape.batch_size``, in a shape that holds them."""

    rows: IntArray
    shape: Shape


def in_order(n_windows: int, shape: Shape) -> list[Batch]:
    """Batches of one shape, the windows as they come."""
    rows = np.arange(n_windows)
    return [
        Batch(rows[i : i + shape.batch_size], shape) for i in range(0, n_windows, shape.batch_size)
    ]


def by_length(n_pieces: IntArray, shape: Shape) -> list[Batch]:
    """Batches of windows of like length, the longest first.

    Each holds about as many pieces as ``shape``, or ``MIN_PIECES``, in one of a few lengths.

    Args:
        n_pieces: ``[N]`` pieces of each window without padding.
        shape: of the largest batch.

    >>> [(b.rows.tolist(), b.shape.length, b.shape.full) for b in
    ...  by_length(np.array([70, 256, 256]), Shape(2, 256))]
    [([1, 2, 0], 256, False)]
    """
    order = np.argsort(-n_pieces, kind="stable")
    found, first = list[Batch](), 0
    while first < len(order):
        length = rounded_up(int(n_pieces[order[first]]), shape.length)
        size = max(shape.batch_size * shape.length, MIN_PIECES) // length
        rows = order[first : first + size]
        full = bool(n_pieces[rows[-1]] == length)
        found.append(Batch(rows, Shape(size, length, full)))
        first += size
    return found


def rounded_up(length: int, longest: int) -> int:
    """The least of a few lengths up to ``longest`` that holds ``length`` pieces.

    >>> [rounded_up(n, 512) for n in (0, 128, 129, 511)], rounded_up(70, 100)
    ([128, 128, 256, 512], 100)
    """
    step = -(-longest // (LENGTHS * LENGTH_STEP)) * LENGTH_STEP
    return min(max(-(-length // step), 1) * step, longest)
