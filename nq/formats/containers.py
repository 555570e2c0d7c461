"""How a file holds records: as lines, rows of parquet or CSV, or questions of SQuAD or MRQA.

The first bytes of a file tell, not its name. A file of none of these kinds is read line by line,
and what is no record becomes a dead letter, so that one bad line never costs the rest of a file.
"""

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from nq.formats import csv_rows, lines, parquet, squad
from nq.formats.lines import BOM, GZIP_MAGIC, MAX_LINES, Row, binary_kind, text_kind

HEAD_BYTES = 16 << 10
_RECORD_START = re.compile(rb"\{[ \t]*\"")
_NO_RECORDS = f"no file of records, by its first {MAX_LINES} lines", "give another file"


def _check_lines(path: str) -> None:
    """Raises ``ValueError`` if a file is of a kind in whose lines there are no records."""
    data, head = _head(path)
    kind = binary_kind(head)
    if not kind:
        several = [line for _, line in islice(lines.rows(path), MAX_LINES)]
        n_records = sum(
            isinstance(line, bytes) and bool(_RECORD_START.match(line)) and line.endswith(b"}")
            for line in several
        )  # in an array with one object a line, the last one looks like a record
        if n_records <= 1 and not _RECORD_START.match(head):
            no_records = len(several) == MAX_LINES and not n_records
            kind = text_kind(head) or (_NO_RECORDS if no_records else None)
    if kind:
        name = f"{kind[0]} in a gzip file" if data.startswith(GZIP_MAGIC) else kind[0]
        expected = "one JSON object a line, plain or gzip, parquet, CSV, or a file of SQuAD"
        raise ValueError(f"{path} is {name}: {kind[1]}; expected {expected}")


@dataclass(frozen=True)
class Container:
    """How records are read; ``check`` raises ``ValueError`` for a file that can have none."""

    rows: Callable[[str], Iterator[tuple[int, Row]]]
    check: Callable[[str], None] = lambda path: None


PARQUET = Container(parquet.rows, parquet.check_parquet)
SQUAD = Container(lambda path: enumerate(squad.squad_questions(path), 1))
MRQA = Container(lambda path: enumerate(squad.mrqa_questions(path), 1))
CSV = Container(csv_rows.rows, csv_rows.check_csv)
LINES = Container(lines.rows, _check_lines)


def container_of(path: str) -> Container:
    """Returns how a file holds records."""
    data, head = _head(path)
    if data.startswith(parquet.MAGIC):
        return PARQUET
    if squad.START.match(head):
        return SQUAD
    if squad.is_mrqa(path, head):
        return MRQA
    return CSV if not binary_kind(head) and csv_rows.is_csv(path, head) else LINES


def rows(
    path: str, share: tuple[int, int] = (0, 1), limit: int | None = None, page: str | None = None
) -> Iterator[tuple[int, Row]]:
    """Yields the records of a file with their numbers from 1.

    A share ``(i, n)`` is every n-th record, from the i-th on, of the first ``limit``; ``page`` is
    the field that names a page, if it is not ``questions.PAGE``.
    """
    container, (worker, workers) = container_of(path), share
    if container is PARQUET:  # which does not decode the other rows
        return parquet.rows(path, share, limit, page)
    return islice(islice(container.rows(path), limit), worker, None, workers)


def count(path: str, limit: int | None = None) -> int:
    """Returns how many records, good or bad, ``rows`` yields for a file."""
    if container_of(path) is PARQUET:
        return len(range(parquet.count(path))[:limit])
    return sum(1 for _ in rows(path, limit=limit))


def _head(path: str) -> tuple[bytes, bytes]:
    """Returns the first bytes of a file, and the first bytes of its content without gzip or BOM."""
    with open(path, "rb") as file:
        data = head = file.read(HEAD_BYTES)
    if data.startswith(GZIP_MAGIC):
        try:
            head = zlib.decompressobj(wbits=31).decompress(data, HEAD_BYTES)
        except zlib.error:  # the lines before the damage are read
            head = b""
    return data, head.removeprefix(BOM)
