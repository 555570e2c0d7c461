"""Where windows begin and end."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nq.preprocess.windows import windows
from tests.preprocess.synthetic_examples import few

sizes = st.integers(1, 60)


def slowly(n_pieces: int, length: int, stride: int) -> list[tuple[int, int]]:
    """The same, found by trying every start."""
    step = min(stride, length)
    starts = [s for s in range(n_pieces) if s % step == 0]
    needed = next(i for i, s in enumerate(starts) if s + length >= n_pieces)
    return [(s, min(s + length, n_pieces)) for s in starts[: needed + 1]]


@few
@given(sizes, sizes, sizes)
def test_against_a_slower_search(n_pieces: int, length: int, stride: int) -> None:
    assert windows(n_pieces, length, stride) == slowly(n_pieces, length, stride)


@few
@given(st.integers(1, 3000), st.integers(1, 600), st.integers(1, 600))
def test_cover_and_overlap(n_pieces: int, length: int, stride: int) -> None:
    found = windows(n_pieces, length, stride)
    starts, ends = zip(*found, strict=True)
    assert {piece for start, end in found for piece in range(start, end)} == set(range(n_pieces))
    assert {b - a for a, b in pairwise(starts)} <= {min(stride, length)}
    assert all(end - start == length for start, end in found[:-1])
    assert ends[-1] == n_pieces
    assert all(end < n_pieces for end in ends[:-1])
