"""The records of input files, each decoded by the dialect that matches its fields.

It becomes an ``Example`` or a ``DeadLetter`` with the reason, so that every record is accounted for
and none stops the stream.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson

from nq.answers import Page
from nq.formats import containers, csv_rows, lines, natural_questions, own_data, tydi
from nq.formats.documents import SUFFIXES, page_from_record, read_document
from nq.formats.fields import LIMITS, Record, RecordError
from nq.formats.input_files import SHARD_SUFFIXES, path_text, shown
from nq.formats.own_data import PageFolder
from nq.records import DeadLetter, Example, Source

DIALECTS = {
    natural_questions.TOKENS: ("NQ v1.0", natural_questions.decode_v1),
    natural_questions.TEXT: ("simplified NQ", natural_questions.decode_simplified),
    tydi.TEXT: ("TyDi QA", tydi.decode),
    natural_questions.DOCUMENT: ("Hugging Face's natural_questions", natural_questions.decode_row),
    own_data.CONTEXT: ("question and context", own_data.decode_context),
}
"""Name and function of each dialect, by the field with the page, which a record must have.

A record with a question and none of them names its page in another file.
"""
EXCERPT_CHARS, MAX_NAME = 500, 4096

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

    ``share`` and ``limit`` are those of ``containers.rows``; sources have the path ``name`` if any.
    """
    for number, row in containers.rows(path, share, limit, pages.column if pages else None):
        source = Source(file_index, shown(name or path), number)
        yield source, decode_row(source, row, pages)


def decode_row(source: Source, row: lines.Row, pages: PageFolder | None) -> Example | DeadLetter:
    """Returns the example in a row of a file, or the dead letter of a bad one."""
    try:
        example = decode_record(lines.parsed(row), pages)
        if example.example_id == own_data.NO_ID:
            return replace(example, example_id=f"{Path(source.path).name}:{source.line}")
        return example
    except RecordError as error:
        text = row if isinstance(row, bytes) else b""
        if not isinstance(row, bytes | RecordError):
            with contextlib.suppress(TypeError):  # it is nested deeper than orjson writes
                text = orjson.dumps(row, default=str)
        excerpt = text[: EXCERPT_CHARS * 4].decode("utf-8", "backslashreplace")
        return DeadLetter(source, str(error), excerpt[:EXCERPT_CHARS])


def decode_record(record: Record, pages: PageFolder | None = None) -> Example:
    """Returns the example in a record of any dialect."""
    marks = [mark for mark in DIALECTS if record.get(mark) is not None]
    if type(record.get(own_data.QUESTION)) is str:  # Hugging Face's is an object
        marks = [mark for mark in marks if mark != natural_questions.DOCUMENT]
    if marks:
        example = DIALECTS[marks[0]][1](record)
    elif own_data.QUESTION in record:
        example = own_data.decode_page_question(record, pages)
    else:
        expected = " or ".join(f"{mark!r} ({name})" for mark, (name, _) in DIALECTS.items())
        raise RecordError(f"no document: expected a field {expected} or 'question' (and page)")
    LIMITS.check_example(example)
    return example


def is_official(path: str) -> bool:
    """Returns whether the first record of a file is of NQ v1.0 or simplified NQ.

    It may be gold without the document, which only the official evaluation reads.
    """
    others = {*DIALECTS, own_data.QUESTION} - {natural_questions.TOKENS, natural_questions.TEXT}
    is_lines = containers.container_of(path) is containers.LINES
    return is_lines and lines.first_record(path).keys().isdisjoint(others)


def is_file_name(text: str) -> bool:
    """Returns whether a text is a path or has the suffix of a file, and no blanks."""
    name = text.strip().lower() if len(text) <= MAX_NAME else ""
    is_path = name.startswith(("/", "./", "../", "~/"))
    return len(name.split()) == 1 and (is_path or name.endswith((*SUFFIXES, *SHARD_SUFFIXES)))


def read_page(path: str | Path, record: str | int | None = None) -> Page:
    """Reads a page from a file of text, HTML, Markdown, PDF, Word (docx) or NQ records.

    The suffix of the file's name tells which, or else the content.

    Args:
        record: In a file of records, the record's number (from 1) or its example_id, whichever
            comes first; by default the first record.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file has no such record, no text, or is of another kind.
        Error: The package that reads it is not installed.
    """
    name = path_text(path)
    if name.endswith(SHARD_SUFFIXES) or (
        name.endswith(csv_rows.SUFFIXES)  # a table without these columns is a page itself
        and Path(name).is_file()
        and {own_data.QUESTION, own_data.CONTEXT} <= set(csv_rows.columns(name))
    ):
        page = page_from_record(_record(name, None if record is None else str(record)), name)
        return replace(page, name=name)
    if record is not None:
        endings = ", ".join(SHARD_SUFFIXES)
        raise ValueError(f"{name} is not a file of records; the names of these end in {endings}")
    return read_document(name)


def _record(path: str, wanted: str | None) -> Example:
    containers.check(path)
    number = 0
    for number, (source, item) in enumerate(read_records(path), 1):
        matches = wanted in (None, str(number))
        if isinstance(item, Example):
            if matches or str(item.example_id) == wanted:
                return item
        elif matches:
            raise RecordError(f"{path}, line {source.line}: {item.reason}")
    which = f"number or id {wanted}" if number else "text"
    raise ValueError(f"none of the {number} records of {path} has {which}: give another file")
