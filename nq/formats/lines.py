"""The lines of a file, plain or gzip, in memory that does not depend on their length."""

from __future__ import annotations

import gzip
import io
import itertools
import zlib
from collections.abc import Iterator
from typing import IO, cast

from nq.formats.fields import RecordError
from nq.formats.limits import RecordLimits

GZIP_MAGIC = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"
SKIP_BYTES = 1 << 20
BUFFER_BYTES = 1 << 16
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


def nonblank_lines(path: str, limits: RecordLimits) -> Iterator[tuple[int, bytes | RecordError]]:
    """Yields number and text of each line that is not blank, stripped.

    An error replaces a line that is too long, and the rest of a damaged gzip file.

    Raises:
        OSError: The file cannot be opened or read.
    """
    with (
        open(path, "rb") as raw,
        _decompressed(raw) if raw.peek(2)[:2] == GZIP_MAGIC else raw as file,
    ):
        for number in itertools.count(1):
            try:
                line = _read_line(file, limits)
            except _DAMAGED as error:
                yield number, RecordError(f"the compressed file is cut off or damaged: {error}")
                return
            if isinstance(line, bytes):
                if not line:
                    return
                line = (line.removeprefix(BOM) if number == 1 else line).strip()
            if line:
                yield number, line


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
