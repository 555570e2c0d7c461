"""The lines that commands print for bad records and for blocks that were not read."""

import re
from collections import Counter
from pathlib import Path

import orjson

from nq.text import counted, visible

_DETAIL = re.compile(r"'[^']*'|\"[^\"]*\"|-?\d+")


def dead_letter_lines(path: Path) -> list[str]:
    """Returns the lines for a file of dead letters, none if it has none.

    Reasons that differ only in numbers and in quoted text are the same kind.
    """
    counts, first = Counter[str](), dict[str, str]()
    with path.open("rb") as file:
        for letter in map(orjson.loads, file):
            kind = _DETAIL.sub("…", letter["reason"])
            counts[kind] += 1
            where = f"{letter['file']}, line {letter['line']}"
            first.setdefault(kind, f"{where}: {letter['reason']}")
    if not counts:
        return []
    total, ((kind, count),) = counts.total(), counts.most_common(1)
    records = "1 bad record is" if total == 1 else f"{total} bad records are"
    frequent = "the reason" if total == 1 else "the first reason"
    if count > 1:
        frequent = f"the most frequent reason ({count} times)"
    return [visible(f"{records} in {path}; {frequent}:"), visible(f"  {first[kind]}")]


def unread_line(truncated_pages: int, unread_blocks: int) -> str:
    """Returns in one line how many blocks were not read.

    >>> unread_line(2, 31)
    '2 questions lost blocks of their pages, 31 blocks in all: a higher max_contexts reads them'
    """
    questions, blocks = counted(truncated_pages, "question"), counted(unread_blocks, "block")
    pages = "its page" if truncated_pages == 1 else "their pages"
    return f"{questions} lost blocks of {pages}, {blocks} in all: a higher max_contexts reads them"
