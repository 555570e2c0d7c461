"""The records of one input file, each decoded by the dialect that matches its fields.

Each record becomes an ``Example`` or a ``DeadLetter`` with the reason, so that every record is
accounted for and none stops the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson

from nq.formats import (
    hugging_face,
    lines,
    nq_v1,
    parquet,
    passages,
    questions,
    simplified,
    tydi,
)
from nq.formats.containers import container_of
from nq.formats.fields import Record, RecordError
from nq.formats.limits import LIMITS, RecordLimits
from nq.formats.lines import parse_line
from nq.formats.questions import PageFolder
from nq.formats.streams import shown
from nq.records import DeadLetter, Example, Source

DIALECTS = (nq_v1, simplified, tydi, hugging_face, passages, questions)
EXCERPT_CHARS = 500


def count_records(path: str, limit: int | None = None) -> int:
    """Returns how many records, good or bad, ``read_records`` yields for a file."""
    container = container_of(path)
    if container is parquet:
        n_rows = parquet.count(path)
        return n_rows if limit is None else min(n_rows, limit)
    return sum(1 for _ in container.rows(path, limit=limit))


def read_records(
    path: str,
    file_index: int = 0,
    share: tuple[int, int] = (0, 1),
    limit: int | None = None,
    limits: RecordLimits = LIMITS,
    pages: PageFolder | None = None,
    name: str | None = None,
) -> Iterator[tuple[Source, Example | DeadLetter]]:
    """Yields each record of one file as an example or as a dead letter, with its source.

    Args:
        path: The file, of any kind, as its first bytes (not its name) tell.
        file_index: The file's index among the inputs.
        share: ``(i, n)`` reads every n-th record, from the i-th on, for n parallel readers.
        limit: The number of records of the file after which to stop.
        limits: How large a record may be; a larger one is a dead letter.
        pages: The pages that questions name.
        name: The path that sources have; by default that of the file.

    Raises:
        OSError: The file cannot be opened or read.
        ValueError: See ``check_files``.
    """
    for number, record in container_of(path).rows(path, share, limit, limits):
        source = Source(file_index, shown(name or path), number)
        item: Example | DeadLetter
        try:
            if isinstance(record, RecordError):
                raise record
            if isinstance(record, bytes):
                item = decode_example(record, limits, pages)
            else:
                item = decode_record(record, limits, pages)
            if item.example_id == passages.NO_ID:
                item = replace(item, example_id=f"{Path(source.path).name}:{number}")
        except RecordError as error:
            item = dead_letter(source, error, record)
        yield source, item


def dead_letter(
    source: Source, error: RecordError, record: Record | bytes | RecordError
) -> DeadLetter:
    """Returns a record that cannot be used as a dead letter, with its first characters."""
    if isinstance(record, RecordError):
        return DeadLetter(source, str(error), "")
    line = record if isinstance(record, bytes) else orjson.dumps(record, default=str)
    excerpt = line[: EXCERPT_CHARS * 4].decode("utf-8", "backslashreplace")[:EXCERPT_CHARS]
    return DeadLetter(source, str(error), excerpt)


def read_lines(
    path: str,
    file_index: int = 0,
    share: tuple[int, int] = (0, 1),
    limit: int | None = None,
    limits: RecordLimits = LIMITS,
) -> Iterator[tuple[Source, bytes | RecordError]]:
    """Yields the lines of one file that are not blank, stripped, with their source.

    An error replaces a line that is too long, and the rest of a damaged gzip file. The arguments
    are those of ``read_records``.

    Raises:
        OSError: The file cannot be opened or read.
    """
    for number, line in lines.rows(path, share, limit, limits):
        yield Source(file_index, shown(path), number), line


def decode_example(
    line: bytes, limits: RecordLimits = LIMITS, pages: PageFolder | None = None
) -> Example:
    """Returns the example in one line of JSON, in any dialect.

    Raises:
        RecordError: The line is not JSON, or the record is bad; the text gives the reason.
    """
    return decode_record(parse_line(line, limits), limits, pages)


def decode_record(
    record: Record, limits: RecordLimits = LIMITS, pages: PageFolder | None = None
) -> Example:
    """Returns the example in a record of any dialect.

    Args:
        record: The record.
        limits: How large it may be.
        pages: The pages that questions name.

    Raises:
        RecordError: The record is bad; the text gives the reason.
    """
    matching = [dialect for dialect in DIALECTS if dialect.MARK in record]
    if not matching:
        marks = " or ".join(f"{d.MARK!r} ({d.NAME})" for d in DIALECTS)
        raise RecordError(f"no document: expected a field {marks}")
    with_document = [d for d in matching if record[d.MARK] is not None and d is not questions]
    dialect = (with_document or matching)[0]
    own = () if dialect is not questions else (pages,)
    example: Example = dialect.decode(record, limits, *own)
    limits.check_example(example)
    return example
