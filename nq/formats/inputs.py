"""The records of input files: lines, elements, rows of parquet or CSV, questions of SQuAD or MRQA.

The first bytes of a file tell which, not its name. A file of none of these kinds is read line by
line. The dialect that matches the fields of a record decodes it to an ``Example``; a bad record
becomes a ``DeadLetter`` with the reason, so that every record is accounted for and one bad line
never costs the rest of a file.
"""

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

import orjson

from nq.answers import Page
from nq.formats import (
    csv_rows,
    elements,
    json_head,
    lines,
    natural_questions,
    own_data,
    parquet,
    retrieved,
    squad,
    tydi,
)
from nq.formats.documents import SUFFIXES, page_from_record, read_document
from nq.formats.fields import LIMITS, Record, RecordError
from nq.formats.input_files import ENDINGS, SHARD_SUFFIXES, path_text, shown
from nq.formats.lines import (
    BOM,
    MAX_LINES,
    PRETTY,
    Row,
    binary_kind,
    compression_of,
    text_kind,
)
from nq.formats.own_data import TO_RETRIEVE, PageFolder
from nq.records import DeadLetter, Example, Source
from nq.text import listed

log = logging.getLogger(__name__)

DIALECTS = {
    own_data.CONTEXT: ("question and context", own_data.decode_context),
    natural_questions.TOKENS: ("NQ v1.0", natural_questions.decode_v1),
    natural_questions.TEXT: (
        "simplified NQ",
        natural_questions.decode_simplified,
    ),
    tydi.TEXT: ("TyDi QA", tydi.decode),
    natural_questions.DOCUMENT: (
        "Hugging Face's natural_questions",
        natural_questions.decode_row,
    ),
    **dict.fromkeys(retrieved.FIELDS, ("passages", retrieved.decode)),
}
"""Name and function of each dialect, by the field with the page, which a record must have.

Of several fields of a record the first one here is read. A record with a question and none of them
names its page in another file.
"""
EXCERPT_CHARS = 500
MAX_NAME = 4096
HEAD_BYTES = 16 << 10
_RECORD_START = re.compile(rb"\{[ \t]*\"")
_NO_RECORDS = (
    f"no file of records, by its first {MAX_LINES} lines",
    "give another file",
)


def _check_lines(path: str) -> None:
    """Raises ``ValueError`` if a file is of a kind that has no records in its lines."""
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
    if kind is PRETTY and (place := _path_to_records(head)):
        kind = PRETTY[0], f"write one object a line with jq -c '{place}'"
    if kind:
        name = f"{kind[0]} in a compressed file" if compression_of(data) else kind[0]
        expected = "one JSON object a line, plain or compressed, parquet, CSV, or a file of SQuAD"
        raise ValueError(f"{path} is {name}: {kind[1]}; expected {expected}")


def _path_to_records(head: bytes) -> str:
    """Returns where an object has records in it, as jq writes it, by its first bytes."""
    return json_head.path_to_records(head, {*DIALECTS, own_data.QUESTION, retrieved.TEXTS})


@dataclass(frozen=True)
class Container:
    """How records are read; ``check`` raises ``ValueError`` for a file that can have none."""

    rows: Callable[[str], Iterator[tuple[int, Row]]]
    check: Callable[[str], None] = lambda path: None


PARQUET = Container(parquet.rows, parquet.check_parquet)
SQUAD = Container(lambda path: enumerate(squad.squad_questions(path), 1))
MRQA = Container(lambda path: enumerate(squad.mrqa_questions(path), 1))
ELEMENTS = Container(elements.rows)
CSV = Container(csv_rows.rows, csv_rows.check_csv)
LINES = Container(lines.rows, _check_lines)


def container_of(path: str) -> Container:
    """Returns how a file holds records."""
    data, head = _head(path)
    if data.startswith(parquet.MAGIC):
        return PARQUET
    if json_head.list_start(head, squad.DATA) >= 0:
        return SQUAD
    if json_head.is_list(head):
        return ELEMENTS
    if squad.is_mrqa(path, head):
        return MRQA
    return CSV if not binary_kind(head) and csv_rows.is_csv(path, head) else LINES


def check(path: str, to_end: bool = True) -> None:
    """Raises ``ValueError`` if a file has no records, is damaged or lacks columns.

    The checksums of a compressed file are compared if it is read ``to_end``.
    """
    container_of(path).check(path)
    if to_end and compression_of(_head(path)[0]):
        with (
            contextlib.suppress(RecordError),
            lines.open_bytes(path) as file,
        ):
            while file.read(lines.SKIP_BYTES):
                pass


def rows(
    path: str,
    share: tuple[int, int] = (0, 1),
    limit: int | None = None,
    page: str | None = None,
) -> Iterator[tuple[int, Row]]:
    """Yields the records of a file with their numbers from 1.

    A share ``(i, n)`` is every n-th record, from the i-th on, of the first ``limit``; ``page`` is
    the field that names a page, if it is not ``own_data.PAGE_FIELD``.
    """
    container = container_of(path)
    worker, workers = share
    if container is PARQUET:  # which does not decode the other rows
        return parquet.rows(path, share, limit, page)
    return islice(islice(container.rows(path), limit), worker, None, workers)


def count_records(path: str, limit: int | None = None) -> int:
    """Returns how many records, good or bad, a file has."""
    if container_of(path) is PARQUET:
        return len(range(parquet.count(path))[:limit])
    return sum(1 for _ in rows(path, limit=limit))


def _head(path: str) -> tuple[bytes, bytes]:
    """Returns the first bytes of a file, and those of its content, decompressed and without BOM."""
    with open(path, "rb") as file:
        data = head = file.read(HEAD_BYTES)
    if compression_of(data):
        head = b""
        with (
            contextlib.suppress(RecordError),
            lines.open_bytes(path) as content,
        ):
            head = content.read1(HEAD_BYTES)
    return data, head.removeprefix(BOM)


def read_records(
    path: str,
    file_index: int = 0,
    share: tuple[int, int] = (0, 1),
    limit: int | None = None,
    pages: PageFolder | None = None,
    name: str | None = None,
) -> Iterator[tuple[Source, Example | DeadLetter]]:
    """Yields each record of one file as an example or as a dead letter, with its source.

    ``share`` and ``limit`` are those of ``rows``; sources have the path ``name`` if any.
    """
    for number, row in rows(path, share, limit, pages.column if pages else None):
        source = Source(file_index, shown(name or path), number)
        yield source, decode_row(source, row, pages)


def decode_row(source: Source, row: Row, pages: PageFolder | None) -> Example | DeadLetter:
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
    record = retrieved.flat(record)
    marks = _marks(record)
    if marks:
        named = [pages.column] if pages and record.get(pages.column) else []
        if len(marks) + len(named) > 1:
            _mention_pages(*marks, *named)
        example = DIALECTS[marks[0]][1](record)
    elif own_data.QUESTION in record:
        example = own_data.decode_page_question(record, pages)
    elif record.keys() >= {"input", "output"}:
        raise RecordError(f"a record of KILT names pages and has no text of them: {TO_RETRIEVE}")
    else:
        raise RecordError(f"no document: {_expected(record)}")
    LIMITS.check_example(example)
    return example


def _marks(record: Record) -> list[str]:
    """Returns the fields of a record with pages that its question can be about."""
    marks = [mark for mark in DIALECTS if record.get(mark) is not None]
    has_question = type(record.get(own_data.QUESTION)) is str  # Hugging Face's is an object
    if has_question:
        marks = [mark for mark in marks if mark != natural_questions.DOCUMENT]
    context = record.get(own_data.CONTEXT)
    is_own_data = has_question and type(context) is str and context.strip()
    others = [mark for mark in marks if mark != own_data.CONTEXT]
    return others if others and not is_own_data else marks


def _expected(record: Record) -> str:
    """Returns what to do with a record of no dialect."""
    with contextlib.suppress(TypeError):  # it is nested deeper than orjson writes
        if place := _path_to_records(orjson.dumps(record, default=str)[:HEAD_BYTES]):
            return f"it has records in it; write one object a line with jq -c '{place}'"
    fields = " or ".join(f"{mark!r} ({name})" for mark, (name, _) in DIALECTS.items())
    return f"expected a field {fields} or 'question' (and page)"


@cache
def _mention_pages(used: str, *others: str) -> None:
    """Logs, once, which page of a record with several is read."""
    log.warning(
        "a record has pages in the fields %s and %s: %s is read",
        used,
        listed(others),
        used,
    )


def is_official(path: str) -> bool:
    """Returns whether the first record of a file is of NQ v1.0 or simplified NQ.

    It may be gold without the document, which only the official evaluation reads.
    """
    record = retrieved.flat(lines.first_record(path))
    others = {*DIALECTS, own_data.QUESTION} - {
        natural_questions.TOKENS,
        natural_questions.TEXT,
    }
    return container_of(path) is LINES and record.keys().isdisjoint(others)


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
        raise ValueError(f"{name} is not a file of records; the names of these end in {ENDINGS}")
    return read_document(name)


def _record(path: str, wanted: str | None) -> Example:
    check(path)
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
