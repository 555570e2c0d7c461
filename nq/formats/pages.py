"""Reads a page from a file: plain text, HTML, or a record of a file of records."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from nq.formats import containers, csv_rows, decoding, input_files, questions
from nq.formats.documents import decode_page, with_words
from nq.formats.fields import RecordError
from nq.formats.limits import LIMITS
from nq.formats.words import spellings
from nq.records import Example, Page, Span


def read_page(path: str | Path, record: str | int | None = None) -> Page:
    """Reads a page from a file of text, HTML or NQ records.

    The suffix of the file's name tells which, or else the content.

    Args:
        path: The file.
        record: In a file of records, the record's number (from 1) or its example_id, whichever
            comes first; by default the first record.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file has no such record, no text, or is not a text file.
    """
    name = input_files.path_text(path)
    if name.endswith(input_files.SHARD_SUFFIXES) or _is_csv_of_records(name):
        return page_from_record(_record(name, None if record is None else str(record)), name)
    if record is not None:
        raise ValueError(
            f"{name} is not a file of records, so that record {record} cannot be chosen; "
            f"files of records end in {', '.join(input_files.SHARD_SUFFIXES)}"
        )
    with open(name, "rb") as file:
        return decode_page(file.read(LIMITS.bytes + 1), name)


def _is_csv_of_records(path: str) -> bool:
    """Returns whether a file is CSV with questions and contexts, and no table to ask about."""
    return (
        path.endswith(csv_rows.SUFFIXES)
        and Path(path).is_file()
        and containers.container_of(path) is containers.Container.CSV
        and {questions.QUESTION, questions.CONTEXT} <= set(csv_rows.columns(path))
    )


def _record(path: str, wanted: str | None) -> Example:
    containers.check(path)
    number = 0
    for number, (source, item) in enumerate(decoding.read_records(path), 1):
        matches = wanted in (None, str(number))
        if isinstance(item, Example):
            if matches or str(item.example_id) == wanted:
                return item
        elif matches:
            raise RecordError(f"{path}, line {source.line}: {item.reason}")
    if number:
        raise ValueError(f"none of the {number} records of {path} has number or id {wanted}")
    raise ValueError(f"{path} has no records; give a file with at least one record")


def page_from_record(example: Example, name: str = "the page") -> Page:
    """Returns the page of an example, spelled by rules because the original text is lost.

    Words whose bytes are adjacent are joined, whatever the rules are. A page without words is a
    ``ValueError``, which calls the page ``name``.
    """
    return with_words(Page(example, record_spelling(example, Span(0, len(example.tokens)))), name)


def record_spelling(example: Example, span: Span) -> Sequence[str]:
    """Returns the spelling of the tokens of a span of an example; see ``page_from_record``."""
    if example.original is not None:
        return example.original.spelling[span.start : span.end]
    html = example.is_html[span.start : span.end]
    spelled = spellings(example.tokens[span.start : span.end], html)
    for i, (is_html, next_is_html) in enumerate(pairwise(html)):
        if not (is_html or next_is_html) and example.adjacent(span.start + i, span.start + i + 1):
            spelled[i] = spelled[i].rstrip(" ")
    return spelled
