"""The lines of a file, plain or gzip, in memory that does not depend on their length."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, TypeVar, cast

import numpy as np
import orjson

from nq.formats.fields import JSON_NAMES, Record, RecordError
from nq.formats.limits import LIMITS, RecordLimits

GZIP_MAGIC = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"
SKIP_BYTES = 1 << 20
BUFFER_BYTES = 1 << 16
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)

T = TypeVar("T")


def rows(
    path: str,
    share: tuple[int, int] = (0, 1),
    limit: int | None = None,
    limits: RecordLimits = LIMITS,
) -> Iterator[tuple[int, bytes | RecordError]]:
    """Yields the lines of a file that are not blank with their numbers; see ``parquet.rows``."""
    return share_of(nonblank_lines(path, limits), share, limit)


def share_of(records: Iterable[T], share: tuple[int, int], limit: int | None) -> Iterator[T]:
    """Yields what one of several parallel readers reads of the records of a file.

    Args:
        records: all records.
        share: ``(i, n)`` yields every n-th record, from the i-th on.
        limit: the number of records after which to stop, those of all readers together.
    """
    worker, workers = share
    return itertools.islice(itertools.islice(records, limit), worker, None, workers)


def nonblank_lines(path: str, limits: RecordLimits) -> Iterator[tuple[int, bytes | RecordError]]:
    """Yields number and text of each line that is not blank, stripped.

    An error replaces a line that is too long, and the rest of a damaged gzip file.

    Raises:
        OSError: The file cannot be opened or read.
    """
    with open_bytes(path) as file:
        for number in itertools.count(1):
            try:
                line = _read_line(file, limits)
            except DAMAGED as error:
                yield number, RecordError(f"the compressed file is cut off or damaged: {error}")
                return
            if isinstance(line, bytes):
                if not line:
                    return
                line = (line.removeprefix(BOM) if number == 1 else line).strip()
            if line:
                yield number, line


@contextlib.contextmanager
def open_bytes(path: str) -> Iterator[IO[bytes]]:
    """Opens a file and decompresses it if it is gzip.

    Raises:
        OSError: The file cannot be opened.
    """
    with (
        open(path, "rb") as raw,
        _decompressed(raw) if raw.peek(2)[:2] == GZIP_MAGIC else raw as file,
    ):
        yield file


def _decompressed(raw: IO[bytes]) -> IO[bytes]:
    """Returns the content of a gzip file; the buffer reads lines faster than ``GzipFile``."""
    return io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw)), BUFFER_BYTES)


def _read_line(file: IO[bytes], limits: RecordLimits) -> bytes | RecordError:
    """Returns the next line, empty at the end; one that is too long is skipped in small steps."""
    line = file.readline(limits.bytes + 1)
    if len(line) <= limits.bytes or line.endswith(b"\n"):
        return line
    n_bytes = len(line)
    del line
    while chunk := file.readline(SKIP_BYTES):
        n_bytes += len(chunk.rstrip(b"\r\n"))
        if chunk.endswith(b"\n"):
            break
    return limits.error("bytes", n_bytes)


def parse_line(
    line: bytes, limits: RecordLimits = LIMITS, counts: tuple[str, str] = ("bytes", "values")
) -> Record:
    """Returns the JSON object in a line, or in a whole file.

    Args:
        line: The text.
        limits: How large it may be.
        counts: The names of the limits for its bytes and for its JSON values.

    Raises:
        RecordError: It is no JSON object, or too large.
    """
    sizes = len(line), sum(map(line.count, (b",", b"{", b"[")))
    limits.check(**dict(zip(counts, sizes, strict=True)))
    try:
        record = orjson.loads(line)
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
    return record


def json_depth(line: bytes) -> int:
    """Returns how many arrays and objects are open at once at most.

    >>> json_depth(b'{"a]": [[1], {"[": 2}]}')
    3
    """
    steps = np.zeros(256, np.int8)
    steps[list(b"[{")], steps[list(b"]}")] = 1, -1
    text = np.frombuffer(_STRING.sub(b"", line), np.uint8)
    return int(np.cumsum(steps[text]).max(initial=0))
