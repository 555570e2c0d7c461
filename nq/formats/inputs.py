"""Input files: found by name, opened plain or gzip, read line by line.

A line becomes an ``Example`` by the dialect that recognises its fields, or a
``DeadLetter`` with the reason; nothing drops silently and nothing stops the stream.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import orjson

from nq.formats import nq_v1, simplified
from nq.formats.fields import RecordError
from nq.records import DeadLetter, Example, Source

DIALECTS = (nq_v1, simplified)
SHARD_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".ndjson", ".ndjson.gz")
EXCERPT_CHARS = 500
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


def find_files(patterns: Sequence[str]) -> list[str]:
    """The input files that ``patterns`` (files, globs, folders of shards) name, in order.

    Raises:
        FileNotFoundError: a pattern that names nothing.
    """
    found: list[str] = []
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            matches = sorted(str(p) for p in path.iterdir() if p.name.endswith(SHARD_SUFFIXES))
            kinds = ", ".join(SHARD_SUFFIXES)
            problem = f"folder {pattern} holds no file ending in {kinds}"
        elif path.exists():
            matches, problem = [str(path)], ""
        else:
            matches = sorted(m for m in glob.glob(pattern, recursive=True) if Path(m).is_file())
            problem = f"no file matches {pattern}"
        if not matches:
            raise FileNotFoundError(f"{problem}; give a file, a glob in quotes, or a folder")
        found += [m for m in matches if m not in found]
    return found


def digest(path: str) -> str:
    """SHA-256 of a file's bytes as stored."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(path: str) -> IO[bytes]:
    with open(path, "rb") as file:
        zipped = file.read(2) == _GZIP_MAGIC
    return gzip.open(path, "rb") if zipped else open(path, "rb")  # type: ignore[return-value]


def read_lines(
    path: str, file_index: int = 0, share: tuple[int, int] = (0, 1), limit: int | None = None
) -> Iterator[tuple[Source, bytes]]:
    """The lines of one file that are not blank, with their source.

    Args:
        path: the file, plain or gzip (told by its first bytes, not by its name).
        file_index: its place among the inputs.
        share: ``(i, n)`` reads every n-th line from the i-th on, for n readers at once.
        limit: stop after so many lines of the file, blank ones not counted.

    Raises:
        RecordError: the compressed stream is damaged; all lines before were given out.
    """
    worker, workers = share
    seen, number = 0, 0
    with _open(path) as file:
        lines = enumerate(file, start=1)
        while limit is None or seen < limit:
            try:
                number, line = next(lines)
            except StopIteration:
                return
            except (EOFError, OSError, zlib.error) as error:
                raise RecordError(f"cannot read on after line {number}: {error}") from error
            line = line.removeprefix(_BOM).strip() if number == 1 else line.strip()
            if not line:
                continue
            if seen % workers == worker:
                yield Source(file_index, path, number), line
            seen += 1


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
        raise RecordError(f"expected a JSON object, found {type(record).__name__}")
    for dialect in DIALECTS:
        if dialect.MARK in record:
            return dialect.decode(record)
    marks = ", ".join(f"{d.MARK!r} ({d.NAME})" for d in DIALECTS)
    raise RecordError(f"no document: expected one of the fields {marks}")


def _why_not_json(line: bytes, error: Exception) -> str:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as bad:
        return f"not UTF-8: byte {bad.start} is {line[bad.start]:#04x}"
    return f"not JSON: {error}"


def dead_letter(source: Source, line: bytes, reason: str) -> DeadLetter:
    """A bad record kept aside, cut to an excerpt."""
    text = line[: EXCERPT_CHARS * 4].decode("utf-8", "backslashreplace")[:EXCERPT_CHARS]
    return DeadLetter(source, reason, text)


def read_examples(
    path: str, file_index: int = 0, share: tuple[int, int] = (0, 1), limit: int | None = None
) -> Iterator[tuple[Source, Example | DeadLetter]]:
    """Streams one file: each record as an example or as a dead letter; see ``read_lines``."""
    source = Source(file_index, path, 0)
    try:
        for source, line in read_lines(path, file_index, share, limit):
            try:
                yield source, decode_example(line)
            except RecordError as error:
                yield source, dead_letter(source, line, str(error))
    except RecordError as error:
        if share[0] == 0:
            source = Source(file_index, path, source.line + 1)
            yield source, dead_letter(source, b"", str(error))
