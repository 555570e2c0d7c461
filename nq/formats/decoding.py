"""The records of one input file, each decoded by the dialect that matches its fields.

Each record becomes an ``Example`` or a ``DeadLetter`` with the reason, so that every record is
accounted for and none stops the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson

from nq.formats import containers, lines, questions, tydi
from nq.formats.fields import Record, RecordError
from nq.formats.limits import LIMITS
from nq.formats.natural_questions import (
    DOCUMENT,
    TEXT,
    TOKENS,
    decode_row,
    decode_simplified,
    decode_v1,
)
from nq.formats.questions import PageFolder
from nq.formats.streams import shown
from nq.records import DeadLetter, Example, Source

DIALECTS = {
    TOKENS: ("NQ v1.0", decode_v1),
    TEXT: ("simplified NQ", decode_simplified),
    tydi.TEXT: ("TyDi QA", tydi.decode),
    DOCUMENT: ("Hugging Face's natural_questions", decode_row),
    questions.CONTEXT: ("question and context", questions.decode_context),
}
"""Name and function of each dialect, by the field with the page, which a record must have.

A record with a question and none of them names its page in another file.
"""
EXCERPT_CHARS = 500

count_records = containers.count


def read_records(
    path: str,
    file_index: int = 0,
    share: tuple[int, int] = (0, 1),
    limit: int | None = None,
    pages: PageFolder | None = None,
    name: str | None = None,
) -> Iterator[tuple[Source, Example | DeadLetter]]:
    """Yields each record of one file as an example or as a dead letter, with its source.

    Args:
        path: The file, of any kind.
        file_index: The file's index among the inputs.
        share: ``(i, n)`` reads every n-th record, from the i-th on, for n parallel readers.
        limit: The number of records of the file after which to stop.
        pages: The pages that questions name.
        name: The path that sources have; by default that of the file.
    """
    for number, row in containers.rows(path, share, limit):
        source = Source(file_index, shown(name or path), number)
        item: Example | DeadLetter
        try:
            if isinstance(row, RecordError):
                raise row
            item = decode_record(lines.parse_line(row) if isinstance(row, bytes) else row, pages)
            if item.example_id == questions.NO_ID:
                item = replace(item, example_id=f"{Path(source.path).name}:{number}")
        except RecordError as error:
            item = DeadLetter(source, str(error), _excerpt(row))
        yield source, item


def _excerpt(row: containers.Row) -> str:
    if isinstance(row, RecordError):
        return ""
    line = row if isinstance(row, bytes) else orjson.dumps(row, default=str)
    return line[: EXCERPT_CHARS * 4].decode("utf-8", "backslashreplace")[:EXCERPT_CHARS]


def decode_example(line: bytes, pages: PageFolder | None = None) -> Example:
    """Returns the example in one line of JSON, in any dialect; see ``decode_record``."""
    return decode_record(lines.parse_line(line), pages)


def decode_record(record: Record, pages: PageFolder | None = None) -> Example:
    """Returns the example in a record of any dialect."""
    marks = [mark for mark in DIALECTS if mark in record]
    if marks:
        _, decode = DIALECTS[next((m for m in marks if record[m] is not None), marks[0])]
        example = decode(record)
    elif questions.QUESTION in record:
        example = questions.decode_page_question(record, pages)
    else:
        expected = " or ".join(f"{mark!r} ({name})" for mark, (name, _) in DIALECTS.items())
        raise RecordError(
            f"no document: expected a field {expected} or {questions.QUESTION!r} (question and "
            "page)"
        )
    LIMITS.check(**LIMITS.counts(example))
    return example
