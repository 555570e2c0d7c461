"""Input files: found by name, read line by line (plain or gzip) or row by row (parquet).

A record becomes an ``Example`` by the dialect that recognises its fields, or a
``DeadLetter`` with the reason; nothing drops silently and nothing stops the stream.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import orjson

from nq.formats import hugging_face, nq_v1, parquet, simplified, tydi
from nq.formats.fields import JSON_NAMES, Record, RecordError
from nq.records import DeadLetter, Example, Source

DIALECTS = (nq_v1, simplified, tydi, hugging_face)
TABLES = (hugging_face,)  # those that come as parquet too
SHARD_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".ndjson", ".ndjson.gz", ".parquet")
EXCERPT_CHARS = 500
MAX_LINE_BYTES = 256 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


def find_files(patterns: Sequence[str]) -> list[str]:
    """The input files that ``patterns`` (files, globs, folders of shards) name, in order.

    A file that is named twice is read once.

    Raises:
        FileNotFoundError: a pattern that names nothing.
        ValueError: a pattern that names a pipe or a device.
    """
    found: dict[Path, str] = {}
    for pattern in patterns:
        for name in _matches(pattern):
            found.setdefault(Path(name).resolve(), name)
    return list(found.values())


def _matches(pattern: str) -> list[str]:
    path = Path(pattern)
    if path.is_file():
        return [pattern]
    if path.is_dir():
        shards = (p for p in path.iterdir() if p.name.endswith(SHARD_SUFFIXES) and p.is_file())
        matches = sorted(str(p) for p in shards if not p.name.startswith("."))
        problem = f"folder {pattern} holds no file ending in {', '.join(SHARD_SUFFIXES)}"
    elif path.exists():
        raise ValueError(f"{pattern} is neither a file nor a folder; save the records to a file")
    else:
        matches = sorted(m for m in glob.glob(pattern, recursive=True) if Path(m).is_file())
        problem = f"no file matches {pattern}"
    if not matches:
        raise FileNotFoundError(f"{problem}; give a file, a glob in quotes, or a folder")
    return matches


def digest(path: str) -> str:
    """SHA-256 of a file's bytes as stored; read again only where the file has changed."""
    status = Path(path).stat()
    return _digest(path, status.st_size, status.st_mtime_ns)


@lru_cache
def _digest(path: str, size: int, changed_ns: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_files(files: Sequence[str]) -> None:
    """Looks at what can be wrong with a file as a whole, before any work is done.

    Raises:
        ValueError: a parquet file that is damaged or lacks columns.
        OSError: a file cannot be opened.
    """
    for path in files:
        if parquet.is_parquet(path):
            parquet.check(path, TABLES)


def count_records(path: str, limit: int | None = None) -> int:
    """How many records ``read_examples`` gives of a file, good and bad ones."""
    if parquet.is_parquet(path):
        rows = parquet.count(path)
        return rows if limit is None else min(rows, limit)
    return sum(1 for _ in read_lines(path, limit=limit))


def read_lines(
    path: str, file_index: int = 0, share: tuple[int, int] = (0, 1), limit: int | None = None
) -> Iterator[tuple[Source, bytes | RecordError]]:
    """The lines of one file that are not blank, with their source.

    What cannot be read is an error in the line's place: one of more than
    ``MAX_LINE_BYTES``, or the rest of a damaged gzip file.

    Args:
        path: the file, plain or gzip (told by its first bytes, not by its name).
        file_index: its place among the inputs.
        share: ``(i, n)`` reads every n-th line from the i-th on, for n readers at once.
        limit: stop after so many lines of the file, blank ones not counted.

    Raises:
        OSError: the file cannot be opened or read.
    """
    worker, workers = share
    lines = itertools.islice(_filled_lines(path), limit)
    for number, line in itertools.islice(lines, worker, None, workers):
        yield Source(file_index, path, number), line


def _filled_lines(path: str) -> Iterator[tuple[int, bytes | RecordError]]:
    """Each line that is not blank, stripped, with its number from 1."""
    with _open(path) as file:
        for number in itertools.count(1):
            try:
                line = _read_line(file)
            except RecordError as error:
                yield number, error
                continue
            except _DAMAGED as error:
                yield number, RecordError(f"the compressed file is cut off or damaged: {error}")
                return
            if not line:
                return
            stripped = (line.removeprefix(_BOM) if number == 1 else line).strip()
            if stripped:
                yield number, stripped


def _open(path: str) -> IO[bytes]:
    with open(path, "rb") as file:
        zipped = file.read(2) == _GZIP_MAGIC
    return gzip.open(path, "rb") if zipped else open(path, "rb")  # type: ignore[return-value]


def _read_line(file: IO[bytes]) -> bytes:
    line = file.readline(MAX_LINE_BYTES)
    if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
        return line
    while line and not line.endswith(b"\n"):
        line = file.readline(MAX_LINE_BYTES)
    raise RecordError(f"the line is longer than {MAX_LINE_BYTES >> 20} MiB")


def decode_example(line: bytes) -> Example:
    """The example that one line of JSON holds, whatever its dialect.

    Raises:
        RecordError: what is wrong with the record, in a few words.
    """
    try:
        record: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise RecordError(_why_not_json(line, error)) from error
    if not isinstance(record, dict):
        raise RecordError(f"expected a JSON object, found {JSON_NAMES[type(record)]}")
    return decode_record(record)


def decode_record(record: Record) -> Example:
    """The example in a record, whatever its dialect.

    Raises:
        RecordError: what is wrong with the record, in a few words.
    """
    marked = [dialect for dialect in DIALECTS if dialect.MARK in record]
    if not marked:
        marks = " or ".join(f"{d.MARK!r} ({d.NAME})" for d in DIALECTS)
        raise RecordError(f"no document: expected a field {marks}")
    filled = [dialect for dialect in marked if record[dialect.MARK] is not None]
    decode: Callable[[Record], Example] = (filled or marked)[0].decode
    return decode(record)


def _why_not_json(line: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as bad:
        return f"not UTF-8: byte {bad.start + 1} of the line is {line[bad.start]:#04x}"
    return f"not JSON: {error.msg} at character {error.pos + 1}"


def dead_letter(source: Source, line: bytes, reason: str) -> DeadLetter:
    """A bad record kept aside, cut to an excerpt."""
    text = line[: EXCERPT_CHARS * 4].decode("utf-8", "backslashreplace")[:EXCERPT_CHARS]
    return DeadLetter(source, reason, text)


def read_examples(
    path: str, file_index: int = 0, share: tuple[int, int] = (0, 1), limit: int | None = None
) -> Iterator[tuple[Source, Example | DeadLetter]]:
    """Streams one file: each record as an example or as a dead letter.

    Args:
        path: the file, parquet or lines (told by its first bytes, not by its name).
        file_index: its place among the inputs.
        share: ``(i, n)`` reads every n-th record from the i-th on, for n readers at once.
        limit: stop behind so many records of the file.

    Raises:
        OSError: the file cannot be opened or read.
        ValueError: see ``check_files``.
    """
    if parquet.is_parquet(path):
        yield from _read_rows(path, file_index, share, limit)
        return
    for source, line in read_lines(path, file_index, share, limit):
        if isinstance(line, RecordError):
            yield source, dead_letter(source, b"", str(line))
            continue
        try:
            yield source, decode_example(line)
        except RecordError as error:
            yield source, dead_letter(source, line, str(error))


def _read_rows(
    path: str, file_index: int, share: tuple[int, int], limit: int | None
) -> Iterator[tuple[Source, Example | DeadLetter]]:
    """The rows of a parquet file; a row's line is its number."""
    for number, row in parquet.rows(path, TABLES, share, limit):
        source = Source(file_index, path, number)
        if isinstance(row, RecordError):
            yield source, dead_letter(source, b"", str(row))
            continue
        try:
            yield source, decode_record(row)
        except RecordError as error:
            yield source, dead_letter(source, orjson.dumps(row, default=str), str(error))
