"""pieces -> windows: where the overlapping windows of a page begin and end."""

from __future__ import annotations


def count_windows(n_pieces: int, length: int, stride: int) -> int:
    """Returns how many windows a page has; the arguments are those of ``windows``."""
    if not n_pieces:
        return 0
    return 1 + max(0, -(-(n_pieces - length) // min(length, stride)))


def windows(n_pieces: int, length: int, stride: int) -> list[tuple[int, int]]:
    """Returns half-open piece ranges that cover a page.

    Windows begin at 0 and then every ``stride`` pieces until one reaches the end. Where
    ``length`` is smaller than ``stride`` they follow each other without a gap.

    Args:
        n_pieces: pieces of the page.
        length: pieces of a window at most.
        stride: pieces from the start of one window to the start of the next.

    >>> windows(10, length=6, stride=3)
    [(0, 6), (3, 9), (6, 10)]
    """
    step = min(length, stride)
    starts = range(0, count_windows(n_pieces, length, stride) * step, step)
    return [(start, min(start + length, n_pieces)) for start in starts]
