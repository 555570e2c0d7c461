"""Input files, read line by line (plain or gzip) or row by row (parquet).

Each record becomes an ``Example``, by the dialect that matches its fields, or a ``DeadLetter``
with the reason, so that every record is accounted for and none stops the stream.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import itertools
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from nq.errors import Error, check_argument
from nq.files import file_status
from nq.formats import hugging_face, kinds, nq_v1, parquet, simplified, tydi
from nq.formats.fields import JSON_NAMES, Record, RecordError
from nq.formats.limits import LIMITS, RecordLimits
from nq.formats.lines import nonblank_lines
from nq.formats.streams import is_stream, name_of, shown, spooled
from nq.records import DeadLetter, Example, Source

log = logging.getLogger(__name__)

DIALECTS = (nq_v1, simplified, tydi, hugging_face)
SHARD_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".ndjson", ".ndjson.gz", ".parquet")
EXCERPT_CHARS = 500
TIMESTAMP_STEP_NS = 2 * 10**9
"""The coarsest step of a file system's timestamps (FAT)."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def read_examples(
    patterns: str | Path | Sequence[str | Path], *, skip_bad: bool = False
) -> Iterator[Example]:
    """Reads the examples of input files, in order.

    Args:
        patterns: Files, globs or folders of shards, in any dialect: NQ v1.0, simplified NQ, TyDi
            QA (jsonl, plain or gzip) or Hugging Face's natural_questions (jsonl or parquet).
            ``-`` is standard input.
        skip_bad: Whether to log a warning for a bad record and continue with the next.

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
    return _good_examples(files, skip_bad)


def _good_examples(files: Sequence[str], skip_bad: bool) -> Iterator[Example]:
    n_skipped = 0
    with spooled(files) as paths:
        check_files([path for path in paths if path not in files])
        for source, item in itertools.chain.from_iterable(map(read_records, paths)):
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
        if parquet.is_parquet(path):
            parquet.check(path)
        else:
            kinds.check_kind(path)


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
    limits: RecordLimits = LIMITS,
) -> Iterator[tuple[Source, Example | DeadLetter]]:
    """Yields each record of one file as an example or as a dead letter, with its source.

    Args:
        path: The file, parquet or lines, as its first bytes (not its name) tell.
        file_index: The file's index among the inputs.
        share: ``(i, n)`` reads every n-th record, from the i-th on, for n parallel readers.
        limit: The number of records of the file after which to stop.
        limits: How large a record may be; a larger one is a dead letter.

    Raises:
        OSError: The file cannot be opened or read.
        ValueError: See ``check_files``.
    """
    records: Iterable[tuple[Source, Record | bytes | RecordError]]
    if parquet.is_parquet(path):
        rows = parquet.rows(path, share, limit, limits)
        records = ((Source(file_index, shown(path), number), row) for number, row in rows)
    else:
        records = read_lines(path, file_index, share, limit, limits)
    for source, record in records:
        item: Example | DeadLetter
        try:
            if isinstance(record, RecordError):
                raise record
            if isinstance(record, bytes):
                item = decode_example(record, limits)
            else:
                item = decode_record(record, limits)
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
    worker, workers = share
    lines = itertools.islice(nonblank_lines(path, limits), limit)
    for number, line in itertools.islice(lines, worker, None, workers):
        yield Source(file_index, shown(path), number), line


def decode_example(line: bytes, limits: RecordLimits = LIMITS) -> Example:
    """Returns the example in one line of JSON, in any dialect.

    Raises:
        RecordError: The line is not JSON, or the record is bad; the text gives the reason.
    """
    limits.check(bytes=len(line), values=sum(map(line.count, (b",", b"{", b"["))))
    try:
        record: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as bad:
            position = f"byte {bad.start + 1} of the line is {line[bad.start]:#04x}"
            raise RecordError(f"not UTF-8: {position}") from error
        limits.check(depth=json_depth(line))
        raise RecordError(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    if not isinstance(record, dict):
        raise RecordError(f"expected a JSON object, found {JSON_NAMES[type(record)]}")
    return decode_record(record, limits)


def json_depth(line: bytes) -> int:
    """Returns how many arrays and objects are open at once at most.

    >>> json_depth(b'{"a]": [[1], {"[": 2}]}')
    3
    """
    steps = np.zeros(256, np.int8)
    steps[list(b"[{")], steps[list(b"]}")] = 1, -1
    text = np.frombuffer(_STRING.sub(b"", line), np.uint8)
    return int(np.cumsum(steps[text]).max(initial=0))


def decode_record(record: Record, limits: RecordLimits = LIMITS) -> Example:
    """Returns the example in a record of any dialect.

    Raises:
        RecordError: The record is bad; the text gives the reason.
    """
    matching = [dialect for dialect in DIALECTS if dialect.MARK in record]
    if not matching:
        marks = " or ".join(f"{d.MARK!r} ({d.NAME})" for d in DIALECTS)
        raise RecordError(f"no document: expected a field {marks}")
    with_document = [dialect for dialect in matching if record[dialect.MARK] is not None]
    example: Example = (with_document or matching)[0].decode(record, limits)
    limits.check_example(example)
    return example
