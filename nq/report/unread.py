"""The line that commands print for blocks that were not read."""

from __future__ import annotations


def unread_line(truncated_pages: int, unread_blocks: int) -> str:
    """Returns in one line how many blocks were not read.

    >>> unread_line(1, 3)
    '3 blocks of 1 page are beyond --max-contexts and were not read'
    """
    blocks = f"{unread_blocks} block" + "s" * (unread_blocks != 1)
    pages = f"{truncated_pages} page" + "s" * (truncated_pages != 1)
    verbs = "are beyond --max-contexts and were not read"
    return f"{blocks} of {pages} {verbs}"
