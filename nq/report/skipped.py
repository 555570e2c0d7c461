"""The lines that commands print for bad records and for blocks that were not read."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import orjson

from nq.text import counted, visible

MAX_REASONS = 10_000
"""Kinds of reasons that are counted."""
_DETAIL = re.compile(r"'[^']*'|\"[^\"]*\"|-?\d+")


def dead_letter_lines(path: Path) -> list[str]:
    """Returns the lines for a file of dead letters, none if it has none.

    Reasons that differ only in numbers and in quoted text are the same kind.
    """
    counts, first = Counter[str](), dict[str, str]()
    n_letters = 0
    with path.open("rb") as file:
        for line in file:
            letter = orjson.loads(line)
            n_letters += 1
            kind = _DETAIL.sub("…", letter["reason"])
            if kind in first or len(first) < MAX_REASONS:
                counts[kind] += 1
                first.setdefault(
                    kind, f"{letter['file']}, line {letter['line']}: {letter['reason']}"
                )
    if not n_letters:
        return []
    ((kind, count),) = counts.most_common(1)
    records = "1 bad record is" if n_letters == 1 else f"{n_letters} bad records are"
    if count == 1:
        frequent = "the reason" if n_letters == 1 else "the first reason"
    else:
        frequent = f"the most frequent reason ({count} times)"
    return [visible(f"{records} in {path}; {frequent}:"), visible(f"  {first[kind]}")]


def unread_line(truncated_pages: int, unread_blocks: int) -> str:
    """Returns in one line how many blocks were not read.

    >>> unread_line(1, 3)
    '3 blocks of 1 page are beyond --max-contexts and were not read'
    """
    blocks, pages = counted(unread_blocks, "block"), counted(truncated_pages, "page")
    return f"{blocks} of {pages} are beyond --max-contexts and were not read"
