"""The lines of a file, plain or gzip, in memory that does not depend on their length."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import IO, cast

import orjson

from nq.formats.fields import JSON_NAMES, Record, RecordError
from nq.formats.limits import LIMITS

GZIP_MAGIC = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"
BUFFER_BYTES = 1 << 16
SKIP_BYTES = 1 << 20
MAX_LINES = 100
"""Lines among which a file has at least one record."""
NOT_UTF8 = "not UTF-8; convert the file with iconv -t UTF-8"


def rows(path: str) -> Iterator[tuple[int, bytes | RecordError]]:
    """Yields number and text of each line that is not blank, stripped.

    An error replaces a line that is too long, and the rest of a damaged gzip file.
    """
    number = 0
    try:
        with open_bytes(path) as file:
            while line := file.readline(LIMITS.bytes + 1):
                number += 1
                if len(line) > LIMITS.bytes and not line.endswith(b"\n"):
                    yield number, _skip_line(file, len(line))
                elif line := (line.removeprefix(BOM) if number == 1 else line).strip():
                    yield number, line
    except RecordError as error:
        yield number + 1, error


def first_record(path: str) -> Record:
    """Returns the first JSON object in the first lines of a file, empty if there is none."""
    for _, line in islice(rows(path), MAX_LINES):
        with contextlib.suppress(RecordError):
            if isinstance(line, bytes):
                return parse_line(line)
    return {}


def _skip_line(file: IO[bytes], n_bytes: int) -> RecordError:
    """Reads the rest of a line that is too long in small steps; returns the error about it."""
    while chunk := file.readline(SKIP_BYTES):
        n_bytes += len(chunk.rstrip(b"\r\n"))
        if chunk.endswith(b"\n"):
            break
    return RecordError(f"too large: {n_bytes} bytes, the limit is {LIMITS.bytes}")


@contextlib.contextmanager
def open_bytes(path: str) -> Iterator[IO[bytes]]:
    """Opens a file and decompresses it if it is gzip; damage is a ``RecordError``."""
    with open(path, "rb") as raw:
        if raw.peek(2)[:2] != GZIP_MAGIC:
            yield raw
            return
        try:  # the buffer reads lines faster than ``GzipFile``
            yield io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw)), BUFFER_BYTES)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise RecordError(f"the compressed file is cut off or damaged: {error}") from error


def parse_line(line: bytes, limits: str = "") -> Record:
    """Returns the JSON object in a line, or in a whole file.

    ``limits`` is what the names of the limits of its bytes and its JSON values begin with.
    """
    values = sum(map(line.count, (b",", b"{", b"[")))
    LIMITS.check(**{f"{limits}bytes": len(line), f"{limits}values": values})
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        if "UTF-8" in error.msg:
            raise RecordError(NOT_UTF8) from error
        raise RecordError(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    if not isinstance(record, dict):
        raise RecordError(f"expected a JSON object, found {JSON_NAMES[type(record)]}")
    return record
