"""Input files, read line by line (plain or gzip) or row by row (parquet).

Each record becomes an ``Example``, by the dialect that matches its fields, or a ``DeadLetter``
with the reason, so that every record is accounted for and none stops the stream.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import itertools
import logging
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from nq.errors import check_argument
from nq.formats import hugging_face, nq_v1, parquet, simplified, tydi
from nq.formats.fields import JSON_NAMES, Record, RecordError
from nq.records import DeadLetter, Example, Source

log = logging.getLogger(__name__)

DIALECTS = (nq_v1, simplified, tydi, hugging_face)
SHARD_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".ndjson", ".ndjson.gz", ".parquet")
EXCERPT_CHARS = 500
MAX_LINE_BYTES = 256 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


def read_examples(
    patterns: str | Path | Sequence[str | Path], *, skip_bad: bool = False
) -> Iterator[Example]:
    """Reads the examples of input files, in order.

    Args:
        patterns: Files, globs or folders of shards, in any dialect: NQ v1.0, simplified NQ, TyDi
            QA (jsonl, plain or gzip) or Hugging Face's natural_questions (jsonl or parquet).
        skip_bad: Whether to log a warning for a bad record and continue with the next.

    Returns:
        An iterator that reads the files as it is consumed and raises ``RecordError``, with file,
        line and reason, at a bad record unless ``skip_bad`` is set.

    Raises:
        FileNotFoundError: A pattern matches nothing.
        ValueError: A pattern is not a path, or a parquet file is damaged or lacks columns.

    >>> from nq.bundle import bundled_sample
    >>> next(read_examples(bundled_sample())).question
    'when did apollo 11 land on the moon'
    """
    files = find_files(patterns)
    check_files(files)
    return _good_examples(files, skip_bad)


def _good_examples(files: Sequence[str], skip_bad: bool) -> Iterator[Example]:
    n_skipped = 0
    for path in files:
        for source, item in read_records(path):
            if isinstance(item, Example):
                yield item
                continue
            problem = f"{path}, line {source.line}: {item.reason}"
            if not skip_bad:
                raise RecordError(f"{problem}; correct the record, or skip it with skip_bad=True")
            log.warning("skipped a record: %s", problem)
            n_skipped += 1
    if n_skipped:
        log.warning("skipped %d bad records in all", n_skipped)


def find_files(patterns: str | Path | Sequence[str | Path]) -> list[str]:
    """Returns the input files that match ``patterns`` (files, globs, folders of shards), in order.

    A file that several patterns match is returned once.

    Raises:
        FileNotFoundError: A pattern matches nothing.
        ValueError: A pattern is not a path, or names a pipe or a device.
    """
    files: dict[Path, str] = {}
    if isinstance(patterns, str) or not isinstance(patterns, Sequence):
        patterns = [patterns]
    for pattern in patterns:
        for name in _matches(path_text(pattern)):
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
    if path.is_file():
        return [pattern]
    if path.is_dir():
        shards = (p for p in path.iterdir() if p.name.endswith(SHARD_SUFFIXES) and p.is_file())
        matches = sorted(str(p) for p in shards if not p.name.startswith("."))
        problem = f"folder {pattern} has no file ending in {', '.join(SHARD_SUFFIXES)}"
    elif path.exists():
        raise ValueError(f"{pattern} is neither a file nor a folder; save the records to a file")
    else:
        matches = sorted(m for m in glob.glob(pattern, recursive=True) if Path(m).is_file())
        problem = f"no file matches {pattern}"
    if not matches:
        raise FileNotFoundError(f"{problem}; give a file, a glob in quotes, or a folder")
    return matches


def sha256(path: str | Path) -> str:
    """Returns the SHA-256 of a file's bytes; a file is read again only after it has changed."""
    status = Path(path).stat()
    return _sha256(path, status.st_size, status.st_mtime_ns)


@lru_cache
def _sha256(path: str | Path, size: int, changed_ns: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_files(files: Sequence[str]) -> None:
    """Checks for errors that make a file as a whole unusable.

    Raises:
        ValueError: A parquet file is damaged or lacks columns.
        OSError: A file cannot be opened.
    """
    for path in files:
        if parquet.is_parquet(path):
            parquet.check(path)


def count_records(path: str, limit: int | None = None) -> int:
    """Returns how many records, good or bad, ``read_records`` yields for a file."""
    if parquet.is_parquet(path):
        n_rows = parquet.count(path)
        return n_rows if limit is None else min(n_rows, limit)
    return sum(1 for _ in read_lines(path, limit=limit))


def read_records(
    path: str,
    file_index: int = 0,
    share: tuple[int, int] = (0, 1),
    limit: int | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Iterator[tuple[Source, Example | DeadLetter]]:
    """Yields each record of one file as an example or as a dead letter, with its source.

    Args:
        path: The file, parquet or lines, as its first bytes (not its name) tell.
        file_index: The file's index among the inputs.
        share: ``(i, n)`` reads every n-th record, from the i-th on, for n parallel readers.
        limit: The number of records of the file after which to stop.
        max_line_bytes: The length from which a line is a dead letter.

    Raises:
        OSError: The file cannot be opened or read.
        ValueError: See ``check_files``.
    """
    records: Iterable[tuple[Source, Record | bytes | RecordError]]
    if parquet.is_parquet(path):
        rows = parquet.rows(path, share, limit)
        records = ((Source(file_index, path, number), row) for number, row in rows)
    else:
        records = read_lines(path, file_index, share, limit, max_line_bytes)
    for source, record in records:
        item: Example | DeadLetter
        try:
            if isinstance(record, RecordError):
                raise record
            item = decode_example(record) if isinstance(record, bytes) else decode_record(record)
        except RecordError as error:
            item = DeadLetter(source, str(error), _excerpt(record))
        yield source, item


def _excerpt(record: Record | bytes | RecordError) -> str:
    if isinstance(record, RecordError):
        return ""
    line = record if isinstance(record, bytes) else orjson.dumps(record, default=str)
    return line[: EXCERPT_CHARS * 4].decode("utf-8", "backslashreplace")[:EXCERPT_CHARS]


def read_lines(
    path: str,
    file_index: int = 0,
    share: tuple[int, int] = (0, 1),
    limit: int | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Iterator[tuple[Source, bytes | RecordError]]:
    """Yields the lines of one file that are not blank, stripped, with their source.

    An error replaces a line of ``max_line_bytes`` or more, and the rest of a damaged gzip file.
    The arguments are those of ``read_records``.

    Raises:
        OSError: The file cannot be opened or read.
    """
    worker, workers = share
    lines = itertools.islice(_nonblank_lines(path, max_line_bytes), limit)
    for number, line in itertools.islice(lines, worker, None, workers):
        yield Source(file_index, path, number), line


def _nonblank_lines(path: str, max_bytes: int) -> Iterator[tuple[int, bytes | RecordError]]:
    with (
        open(path, "rb") as raw,
        gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == _GZIP_MAGIC else raw as file,
    ):
        for number in itertools.count(1):
            try:
                line = chunk = file.readline(max_bytes)
                while len(chunk) == max_bytes and not chunk.endswith(b"\n"):
                    chunk = file.readline(max_bytes)
            except _DAMAGED as error:
                yield number, RecordError(f"the compressed file is cut off or damaged: {error}")
                return
            if not line:
                return
            if chunk is not line:
                yield number, RecordError(f"the line is longer than {max_bytes >> 20} MiB")
                continue
            stripped = (line.removeprefix(_BOM) if number == 1 else line).strip()
            if stripped:
                yield number, stripped


def decode_example(line: bytes) -> Example:
    """Returns the example in one line of JSON, in any dialect.

    Raises:
        RecordError: The line is not JSON, or the record is bad; the text gives the reason.
    """
    try:
        record: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as bad:
            position = f"byte {bad.start + 1} of the line is {line[bad.start]:#04x}"
            raise RecordError(f"not UTF-8: {position}") from error
        raise RecordError(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    if not isinstance(record, dict):
        raise RecordError(f"expected a JSON object, found {JSON_NAMES[type(record)]}")
    return decode_record(record)


def decode_record(record: Record) -> Example:
    """Returns the example in a record of any dialect.

    Raises:
        RecordError: The record is bad; the text gives the reason.
    """
    matching = [dialect for dialect in DIALECTS if dialect.MARK in record]
    if not matching:
        marks = " or ".join(f"{d.MARK!r} ({d.NAME})" for d in DIALECTS)
        raise RecordError(f"no document: expected a field {marks}")
    with_document = [dialect for dialect in matching if record[dialect.MARK] is not None]
    example: Example = (with_document or matching)[0].decode(record)
    return example
