"""Input files, read record by record (``nq.formats.containers``).

Each record becomes an ``Example``, by the dialect that matches its fields, or a ``DeadLetter``
with the reason, so that every record is accounted for and none stops the stream.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import itertools
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import orjson

from nq.errors import Error, check_argument
from nq.files import file_status
from nq.formats import (
    hugging_face,
    kinds,
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
from nq.formats.streams import is_stream, name_of, shown, spooled
from nq.records import DeadLetter, Example, Source

log = logging.getLogger(__name__)

DIALECTS = (nq_v1, simplified, tydi, hugging_face, passages, questions)
SHARD_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".ndjson", ".ndjson.gz", ".parquet")
EXCERPT_CHARS = 500
TIMESTAMP_STEP_NS = 2 * 10**9
"""The coarsest step of a file system's timestamps (FAT)."""


def read_examples(
    patterns: str | Path | Sequence[str | Path],
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
        ValueError: A pattern is not a path, or a file as a whole is of no use.

    >>> from nq.bundle import bundled_sample
    >>> next(read_examples(bundled_sample())).question
    'when did apollo 11 land on the moon'
    """
    files = _find(patterns)
    check_files([path for path in files if not is_stream(path)])
    return _good_examples(files, skip_bad, page_folder(pages))


def page_folder(pages: PageFolder | str | Path | None) -> PageFolder | None:
    """Returns the pages of a folder; ``None`` and pages that are listed already as they are."""
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


@contextlib.contextmanager
def input_files(patterns: str | Path | Sequence[str | Path]) -> Iterator[list[str]]:
    """Finds input files, with copies of standard input and pipes, which exist inside the block.

    Args:
        patterns: As for ``find_files``; ``-`` is standard input.

    Raises:
        FileNotFoundError: A pattern matches nothing.
        ValueError: A pattern is not a path, or a pipe is empty.
        OSError: A pipe cannot be copied.
    """
    with spooled(_find(patterns)) as files:
        yield files


def find_files(patterns: str | Path | Sequence[str | Path]) -> list[str]:
    """Returns the input files that match ``patterns`` (files, globs, folders of shards), in order.

    A file that several patterns match is returned once.

    Raises:
        FileNotFoundError: A pattern matches nothing.
        ValueError: A pattern is not a path, or names standard input, a pipe or a device.
    """
    files = _find(patterns)
    for path in files:
        if is_stream(path):
            raise ValueError(f"{shown(path)} is no file; save the records to a file")
    return files


def _find(patterns: str | Path | Sequence[str | Path]) -> list[str]:
    """Returns what ``find_files`` does, with ``-`` and pipes."""
    files: dict[Path, str] = {}
    if isinstance(patterns, str) or not isinstance(patterns, Sequence):
        patterns = [patterns]
    for pattern in patterns:
        for name in _matches(name_of(path_text(pattern))):
            files.setdefault(Path(name).resolve(), name)
    return list(files.values())


def path_list(name: str, paths: Iterable[str | Path]) -> tuple[str, ...]:
    """Returns the paths in a list as text.

    Args:
        name: The name of the argument, for errors.
        paths: Files, globs or folders.

    Raises:
        ValueError: It is a single path, not iterable, or empty, or an element is not a path.
    """
    several = isinstance(paths, Iterable) and not isinstance(paths, str | bytes | Path)
    check_argument(several, name, paths, "a list of files, globs or folders")
    texts = tuple(map(path_text, paths))
    check_argument(bool(texts), name, paths, "a list with at least one file, glob or folder")
    return texts


def path_text(path: str | Path) -> str:
    """Returns a path as text.

    Raises:
        ValueError: ``path`` is neither a ``str`` nor a ``Path``.
    """
    if isinstance(path, str | Path):
        return str(path)
    raise ValueError(f"found {path!r:.40} instead of a path; give a str or a pathlib.Path")


def _matches(pattern: str) -> list[str]:
    path = Path(pattern)
    if is_stream(pattern) or path.is_file():
        return [pattern]
    if path.is_dir():
        shards = (p for p in path.iterdir() if p.name.endswith(SHARD_SUFFIXES) and p.is_file())
        matches = sorted(str(p) for p in shards if not p.name.startswith("."))
        problem = f"folder {pattern} has no file ending in {', '.join(SHARD_SUFFIXES)}"
    elif path.exists():
        raise ValueError(
            f"{pattern} is no file, folder or pipe; save the records to a file, or give - for "
            "standard input"
        )
    else:
        matches = sorted(m for m in glob.glob(pattern, recursive=True) if Path(m).is_file())
        problem = f"no file matches {pattern}"
    if not matches:
        raise FileNotFoundError(f"{problem}; give a file, a glob in quotes, or a folder")
    return matches


def sha256(path: str | Path) -> str:
    """Returns the SHA-256 of a file's bytes; a file is read again only if it may have changed.

    That is the case if its size, time or place on the disk differ, or if its time is so recent that
    another change may have the same time.
    """
    status = file_status(path)
    *_, modified_ns, changed_ns = status
    if time.time_ns() - max(modified_ns, changed_ns) < TIMESTAMP_STEP_NS:
        return _digest(path)
    return _digest_once(path, status)


def _digest(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def _digest_once(path: str | Path, status: tuple[int, ...]) -> str:
    return _digest(path)


def check_unchanged(digests: Mapping[str, str]) -> None:
    """Checks that files still have the content that they had when their digests were computed.

    Args:
        digests: the SHA-256 of each file, by path.

    Raises:
        Error: A file has another content.
        OSError: A file cannot be read.
    """
    for path, digest in digests.items():
        if sha256(path) != digest:
            raise Error(
                f"{path} has changed since this command began to read it: run the command again "
                "when the file is complete"
            )


def check_files(files: Sequence[str]) -> None:
    """Checks for errors that make a file as a whole unusable.

    Raises:
        ValueError: A parquet file is damaged or lacks columns, or a file cannot hold records as
            lines (``nq.formats.kinds``).
        OSError: A file cannot be opened.
    """
    for path in files:
        container = container_of(path)
        if container is lines:
            kinds.check_kind(path)
        else:
            container.check(path)


def is_official(path: str) -> bool:
    """Returns whether a file has no record of another format than NQ v1.0 and simplified NQ.

    Its first record tells. It may be gold without the document, which only the official evaluation
    reads.
    """
    if container_of(path) is not lines:
        return False
    for _, line in itertools.islice(lines.rows(path), kinds.MAX_LINES):
        with contextlib.suppress(RecordError):
            if isinstance(line, bytes):
                record = parse_line(line)
                return not any(d.MARK in record for d in DIALECTS if d not in (nq_v1, simplified))
    return True


def check_records(
    files: Sequence[str], limit: int | None = None, pages: PageFolder | None = None
) -> None:
    """Checks that at least one record can be used; reads no further than to the first one.

    Args:
        files: The input files.
        limit: The number of records of all files after which to stop.
        pages: The pages that questions name.

    Raises:
        Error: Every record is bad; the text has the first reason.
        OSError, ValueError: See ``check_files``.
    """
    first: tuple[Source, DeadLetter] | None = None
    records = itertools.chain.from_iterable(read_records(path, pages=pages) for path in files)
    count = 0
    for source, item in itertools.islice(records, limit):
        if isinstance(item, Example):
            return
        first = first or (source, item)
        count += 1
    names = ", ".join(map(shown, files))
    if first is None:
        raise Error(f"there are no records in {names}: give a file with at least one")
    source, letter = first
    what = "the only record is bad" if count == 1 else f"all {count} records are bad; the first"
    raise Error(f"{what}: {source.path}, line {source.line}: {letter.reason}")


def mention_unnamed_pages(files: Sequence[str], pages: PageFolder | None) -> None:
    """Logs a warning if no question names some of the pages; reads the questions only."""
    if pages is None:
        return
    named = set()
    for path in files:
        for _, row in container_of(path).rows(path):
            with contextlib.suppress(RecordError):
                record = parse_line(row) if isinstance(row, bytes) else row
                if not isinstance(record, RecordError):
                    named.add(pages.path(record))
    unnamed = [path for path in pages.files if path not in named]
    if unnamed:
        counts = len(unnamed), len(pages.files)
        log.warning("no question names %d of the %d pages, such as %s", *counts, unnamed[0])


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
) -> Iterator[tuple[Source, Example | DeadLetter]]:
    """Yields each record of one file as an example or as a dead letter, with its source.

    Args:
        path: The file, of any kind, as its first bytes (not its name) tell.
        file_index: The file's index among the inputs.
        share: ``(i, n)`` reads every n-th record, from the i-th on, for n parallel readers.
        limit: The number of records of the file after which to stop.
        limits: How large a record may be; a larger one is a dead letter.
        pages: The pages that questions name.

    Raises:
        OSError: The file cannot be opened or read.
        ValueError: See ``check_files``.
    """
    for number, record in container_of(path).rows(path, share, limit, limits):
        source = Source(file_index, shown(path), number)
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
