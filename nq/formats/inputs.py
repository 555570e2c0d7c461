"""Input files as a whole: their examples in order, and checks before a command begins.

Each record of a file is decoded by the dialect that matches its fields. It becomes an ``Example``
or a ``DeadLetter`` with the reason, so that every record is accounted for and none stops the
stream.
"""

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from nq.answers import Page
from nq.errors import Error
from nq.formats import containers, csv_rows, lines, natural_questions, questions, tydi
from nq.formats.documents import SUFFIXES, page_from_record, read_document
from nq.formats.fields import LIMITS, Record, RecordError
from nq.formats.input_files import (
    SHARD_SUFFIXES,
    Patterns,
    is_stream,
    matching_files,
    path_text,
    shown,
    spooled,
)
from nq.formats.questions import PageFolder
from nq.records import DeadLetter, Example, Source

log = logging.getLogger(__name__)

DIALECTS = {
    natural_questions.TOKENS: ("NQ v1.0", natural_questions.decode_v1),
    natural_questions.TEXT: ("simplified NQ", natural_questions.decode_simplified),
    tydi.TEXT: ("TyDi QA", tydi.decode),
    natural_questions.DOCUMENT: ("Hugging Face's natural_questions", natural_questions.decode_row),
    questions.CONTEXT: ("question and context", questions.decode_context),
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
        item: Example | DeadLetter
        try:
            item = decode_record(lines.parsed(row), pages)
            if item.example_id == questions.NO_ID:
                item = replace(item, example_id=f"{Path(source.path).name}:{number}")
        except RecordError as error:
            text = row if isinstance(row, bytes) else b""
            if not isinstance(row, bytes | RecordError):
                with contextlib.suppress(TypeError):  # it is nested deeper than orjson writes
                    text = orjson.dumps(row, default=str)
            excerpt = text[: EXCERPT_CHARS * 4].decode("utf-8", "backslashreplace")
            item = DeadLetter(source, str(error), excerpt[:EXCERPT_CHARS])
        yield source, item


def decode_record(record: Record, pages: PageFolder | None = None) -> Example:
    """Returns the example in a record of any dialect."""
    marks = [mark for mark in DIALECTS if record.get(mark) is not None]
    if type(record.get(questions.QUESTION)) is str:  # Hugging Face's is an object
        marks = [mark for mark in marks if mark != natural_questions.DOCUMENT]
    if marks:
        example = DIALECTS[marks[0]][1](record)
    elif questions.QUESTION in record:
        example = questions.decode_page_question(record, pages)
    else:
        expected = " or ".join(f"{mark!r} ({name})" for mark, (name, _) in DIALECTS.items())
        raise RecordError(f"no document: expected a field {expected} or 'question' (and page)")
    LIMITS.check_example(example)
    return example


def read_examples(
    patterns: Patterns,
    *,
    skip_bad: bool = False,
    pages: PageFolder | str | Path | None = None,
) -> Iterator[Example]:
    """Reads the examples of input files, in order.

    Args:
        patterns: Files, globs or folders of shards, in any dialect: NQ v1.0, simplified NQ, TyDi
            QA (jsonl, plain or gzip), Hugging Face's natural_questions (jsonl or parquet), SQuAD,
            MRQA, or questions with a context or with the name of a page (jsonl or CSV). ``-`` is
            standard input.
        skip_bad: Whether to log a warning for a bad record and continue with the next.
        pages: The folder of the pages that questions name in their field ``page``.

    Returns:
        An iterator that reads the files as it is consumed and raises ``RecordError``, with file,
        line and reason, at a bad record unless ``skip_bad`` is set.

    Raises:
        FileNotFoundError: A pattern matches nothing.
        ValueError: A pattern is not a path, or a file can hold no records.

    >>> from nq.bundle import bundled_sample
    >>> next(read_examples(bundled_sample())).question
    'when did apollo 11 land on the moon'
    """
    files = matching_files(patterns)
    check_files([path for path in files if not is_stream(path)])
    return _good_examples(files, skip_bad, page_folder(pages))


def page_folder(pages: PageFolder | str | Path | None) -> PageFolder | None:
    """Returns the pages of a folder; ``None`` and pages that are listed as they are."""
    return pages if isinstance(pages, PageFolder | None) else questions.list_pages(pages)


def _good_examples(
    files: Sequence[str], skip_bad: bool, pages: PageFolder | None
) -> Iterator[Example]:
    n_skipped = 0
    with spooled(files) as paths:
        check_files([path for path in paths if path not in files])
        records = (read_records(path, pages=pages) for path in paths)
        for source, item in itertools.chain.from_iterable(records):
            if isinstance(item, Example):
                yield item
                continue
            problem = f"{source.path}, line {source.line}: {item.reason}"
            if not skip_bad:
                raise RecordError(f"{problem}; correct the record, or skip it with skip_bad=True")
            log.warning("skipped a record: %s", problem)
            n_skipped += 1
    if n_skipped:
        log.warning("skipped %d bad records in all", n_skipped)


def check_inputs(
    files: Sequence[str],
    limit: int | None = None,
    pages: PageFolder | None = None,
    others: Sequence[str] = (),
) -> None:
    """Checks input files; a warning names pages that no question in them or ``others`` names."""
    check_files(files)
    check_records(files, limit, pages)
    mention_unnamed_pages((*files, *others), pages)


def check_files(files: Sequence[str]) -> None:
    """Raises ``ValueError`` if a file has no records, is damaged or lacks columns."""
    for path in files:
        containers.container_of(path).check(path)


def is_official(path: str) -> bool:
    """Returns whether the first record of a file is of NQ v1.0 or simplified NQ.

    It may be gold without the document, which only the official evaluation reads.
    """
    others = {*DIALECTS, questions.QUESTION} - {natural_questions.TOKENS, natural_questions.TEXT}
    is_lines = containers.container_of(path) is containers.LINES
    return is_lines and lines.first_record(path).keys().isdisjoint(others)


def check_records(
    files: Sequence[str],
    limit: int | None = None,
    pages: PageFolder | None = None,
    read: Callable[..., Iterator[tuple[Source, Example | DeadLetter]]] = read_records,
) -> None:
    """Raises ``Error`` if none of the first ``limit`` records, which ``read`` yields, is good."""
    records = itertools.chain.from_iterable(read(path, pages=pages) for path in files)
    first, count = "", 0
    for source, item in itertools.islice(records, limit):
        if isinstance(item, Example):
            return
        first = first or f"{source.path}, line {source.line}: {item.reason}"
        count += 1
    if not count:
        names = ", ".join(map(shown, files))
        raise Error(f"there are no records in {names}: give a file with at least one")
    what = "the only record is bad" if count == 1 else f"all {count} records are bad; the first"
    raise Error(f"{what}: {first}")


def mention_unnamed_pages(files: Sequence[str], pages: PageFolder | None) -> None:
    """Logs a warning if no question names some of the pages; reads the questions only."""
    if pages is None:
        return
    named = set()
    for path in files:
        for _, row in containers.rows(path, page=pages.column):
            with contextlib.suppress(RecordError):
                named.add(pages.path(lines.parsed(row)))
    if unnamed := [path for path in pages.files if path not in named]:
        counts = len(unnamed), len(pages.files)
        log.warning("no question names %d of the %d pages, such as %s", *counts, unnamed[0])


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
        and {questions.QUESTION, questions.CONTEXT} <= set(csv_rows.columns(name))
    ):
        page = page_from_record(_record(name, None if record is None else str(record)), name)
        return replace(page, name=name)
    if record is not None:
        endings = ", ".join(SHARD_SUFFIXES)
        raise ValueError(f"{name} is not a file of records; the names of these end in {endings}")
    return read_document(name)


def _record(path: str, wanted: str | None) -> Example:
    containers.container_of(path).check(path)
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
