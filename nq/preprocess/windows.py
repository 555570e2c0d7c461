"""pieces -> windows: where the overlapping windows of a page begin and end."""

from __future__ import annotations


def windows(n_pieces: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Half-open piece ranges that cover a page, each at most ``room`` long.

    Windows begin at 0 and then every ``stride`` pieces until one reaches the end; where
    ``room`` is smaller than the stride they follow each other without a gap.

    >>> windows(10, room=6, stride=3)
    [(0, 6), (3, 9), (6, 10)]
    """
    found = []
    start = 0
    while start < n_pieces:
        end = min(start + room, n_pieces)
        found.append((start, end))
        if end == n_pieces:
            break
        start += min(end - start, stride)
    return found
