"""Lines of plain or compressed files, and the kind of a file in which no line is a record.

A line is read in memory that does not depend on its length. A file is named as one of another kind
(an archive, a document, UTF-16, a JSON array) only where its first bytes leave no doubt.
"""

import bz2
import contextlib
import io
import json
import logging
import lzma
import re
import zlib
from collections.abc import Iterator
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import orjson

from nq import extras
from nq.formats.fields import JSON_NAMES, LIMITS, Record, RecordError
from nq.formats.input_files import shown
from nq.formats.tfrecord import is_tfrecord

GZIP = rb"\x1f\x8b"
XZ = rb"\xfd7zXZ\x00"
BZIP2 = rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"
MAGIC_BYTES = 10
ZSTD_FRAME = b"\x28\xb5\x2f\xfd"
ZSTD = rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"  # frames with content, or to be skipped
ZSTD_CHECKSUM = 4
"""Bit of the byte behind the mark of a frame that tells whether it has a checksum."""
BOM = b"\xef\xbb\xbf"
BUFFER_BYTES = 1 << 16
MAX_XZ_BYTES = 1 << 28
SKIP_BYTES = 1 << 20
POINTER_BYTES = 1024
MAX_LINES = 100
"""Lines among which a file has at least one record."""
NO_CHARACTER = r"\ufffc"
_SURROGATE = r"\\u(?i:d[%s][0-9a-f]{2})"
_ESCAPE = re.compile(rf"{_SURROGATE % '89ab'}{_SURROGATE % 'c-f'}|({_SURROGATE % '89a-f'})|\\.")
NOT_UTF8 = "not UTF-8; convert the file with iconv -t UTF-8"

log = logging.getLogger(__name__)

T = TypeVar("T")
Row = Record | bytes | RecordError
"""A record as an object, or as a line of JSON, or why there is none."""


def rows(path: str) -> Iterator[tuple[int, bytes | RecordError]]:
    """Yields number and text of each line that is not blank; an error for what cannot be read."""
    number = 0
    try:
        with open_bytes(path) as file:
            while line := file.readline(LIMITS.bytes + 1):
                number += 1
                if len(line) > LIMITS.bytes and not line.endswith(b"\n"):
                    n_bytes = len(line)
                    while not line.endswith(b"\n") and (line := file.readline(SKIP_BYTES)):
                        n_bytes += len(line.rstrip(b"\r\n"))
                    problem = f"too large: {n_bytes} bytes, the limit is {LIMITS.bytes}"
                    yield number, RecordError(problem)
                elif line := line.removeprefix(BOM).strip():  # files with a mark may be joined
                    yield number, line
    except RecordError as error:
        yield number + 1, error


def first_record(path: str) -> Record:
    """Returns the first JSON object in the first lines of a file, empty if there is none."""
    for _, line in islice(rows(path), MAX_LINES):
        with contextlib.suppress(RecordError):
            return parsed(line)
    return {}


def parsed(row: Row, limits: str = "") -> Record:
    """Returns the record in an item of ``rows``; raises the item if it is an error.

    ``limits`` is the prefix of the names of the limits of a line.
    """
    if isinstance(row, RecordError):
        raise row
    if not isinstance(row, bytes):
        return row
    check_size(row, limits)
    return check_record(json_value(row))


@contextlib.contextmanager
def open_bytes(path: str) -> Iterator[io.BufferedReader]:
    """Opens a plain or compressed file; ``ValueError`` if damaged, ``RecordError`` if cut off."""
    with open(path, "rb") as raw:
        head = raw.peek(POINTER_BYTES)
        if re.match(LFS_POINTER, head):
            raise RecordError(": ".join(_BINARY[LFS_POINTER]))
        if not (compression := compression_of(head)):
            yield raw
            return
        content = _Content(raw, compression, shown(path))
        yield io.BufferedReader(content, BUFFER_BYTES)
        if not content.has_checksums:
            _mention_without_checksum(shown(path))
        if content.rest:
            raise RecordError("there is other data behind the compressed file")


class _Content(io.RawIOBase):
    """The content of a compressed file; ``rest`` is what follows the end of its last stream.

    ``has_checksums`` tells whether all that was read has one: in zstd it may be left out.
    """

    def __init__(self, file: io.BufferedReader, compression: Any, name: str) -> None:
        self.rest = b""
        self._chunk = io.BytesIO()
        self.has_checksums = True
        self._chunks = self._decompressed(file, compression, name)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._chunk.readinto(buffer)
        while not size and (chunk := next(self._chunks, None)) is not None:
            self._chunk = io.BytesIO(chunk)
            size = self._chunk.readinto(buffer)
        return size

    def _decompressed(
        self, file: io.BufferedReader, compression: Any, name: str
    ) -> Iterator[bytes]:
        new_stream, packed_bytes, *limit = compression
        while compression_of(head := file.read(MAGIC_BYTES)) is compression:
            file.seek(-len(head), io.SEEK_CUR)
            if head.startswith(ZSTD_FRAME) and len(head) > len(ZSTD_FRAME):
                self.has_checksums &= bool(head[len(ZSTD_FRAME)] & ZSTD_CHECKSUM)
            stream = new_stream()
            while not stream.eof:
                needs_input = getattr(stream, "needs_input", True)
                data = file.read(packed_bytes) if needs_input else b""
                if needs_input and not data:
                    raise RecordError("the compressed file is cut off")
                try:
                    chunk = stream.decompress(data, *limit)
                except Exception as error:  # each library has its own
                    raise ValueError(f"{name} is damaged ({error}): copy it again") from error
                yield chunk
            file.seek(-len(stream.unused_data.lstrip(b"\0")), io.SEEK_CUR)
        self.rest = head


@cache
def _mention_without_checksum(name: str) -> None:
    """Logs a warning, once, about a file of zstd whose damage cannot be found."""
    log.warning("%s has no checksum: if it is damaged, other text is read without an error", name)


def check_size(text: bytes, limits: str = "") -> None:
    """Raises ``RecordError`` for a JSON text with too many bytes, or, about, values."""
    n_values = sum(map(text.count, (b",", b"{", b"[")))
    LIMITS.check(**{f"{limits}bytes": len(text), f"{limits}values": n_values})


def check_record(value: Any) -> Record:
    """Returns a JSON value that is an object, else raises ``RecordError``."""
    if isinstance(value, dict):
        return value
    raise RecordError(f"expected a JSON object, found {JSON_NAMES[type(value)]}")


def json_value(data: bytes) -> Any:
    r"""Returns a JSON value; a lone surrogate in it becomes a character of no vocabulary.

    >>> json_value(rb'["a\ud800", "\ud83d\ude00", "\\ud800", NaN, -Infinity]')
    ['a￼', '😀', '\\ud800', None, -inf]
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as first:
        error: json.JSONDecodeError = first
    try:
        text = _ESCAPE.sub(lambda match: NO_CHARACTER if match[1] else match[0], data.decode())
        return json.loads(text, parse_constant=lambda n: None if n == "NaN" else float(n))
    except UnicodeDecodeError:
        raise RecordError(NOT_UTF8) from None
    except json.JSONDecodeError as second:
        if second.pos > error.pos:  # what orjson refuses is no error, such as a lone surrogate
            error = second
    except (ValueError, LookupError, RecursionError):
        pass  # a number or a depth beyond all limits
    raise RecordError(f"not JSON: {error.msg} at character {error.pos + 1}")


def _zstd_stream() -> Any:
    extras.require("zstd")
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


_COMPRESSIONS: dict[bytes, tuple[Any, ...]] = {
    GZIP: (partial(zlib.decompressobj, 31), 1 << 12),  # becomes at most 4 MiB
    BZIP2: (bz2.BZ2Decompressor, 1 << 12, BUFFER_BYTES),
    XZ: (partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, MAX_XZ_BYTES), 1 << 12, BUFFER_BYTES),
    ZSTD: (_zstd_stream, 1 << 8),  # becomes at most 8 MiB
}
"""What makes a decompressor, and the bytes that one call of it takes and, if limited, returns."""


def compression_of(head: bytes) -> tuple[Any, ...] | None:
    """Returns how a file with these first bytes is compressed, ``None`` if it is not."""
    return _first_match(_COMPRESSIONS, head)


FileKind = tuple[str, str]
"""What a file is, and what to do with it."""

_OFFICE = rb"PK\x03\x04.{26}(\[Content_Types\]\.xml|_rels/|xl/)"
_OLE = rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_LOCKED = _OLE + rb".*?E\0n\0c\0r\0y\0p\0t\0e\0d\0P\0a\0c\0k\0a\0g\0e"
_ARCHIVE = rb"PK(\x03\x04|\x05\x06)|7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|.{257}ustar"
_UTF32 = rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff|[\[{]\x00\x00\x00|\x00\x00\x00[\[{]"
_UTF16 = rb"\xff\xfe|\xfe\xff|[\[{]\x00[^\x00]\x00|\x00[\[{]\x00[^\x00]"
"""UTF-32 and UTF-16 with a byte order mark, or JSON without one."""
LFS_POINTER = rb"version https://git-lfs\.github\.com/spec/v\d+\s+(?:ext-[^\n]*\n)*oid sha256:"
_BINARY = {
    LFS_POINTER: ("a Git LFS pointer", "fetch the file itself with git lfs pull"),
    GZIP: ("a gzip file", "decompress it with gunzip"),
    rb"PAR1": ("a parquet file", "give it as it is, with a name that ends in .parquet"),
    _OFFICE: ("a document of Microsoft Office", "save it as text, a workbook as CSV in UTF-8"),
    _LOCKED: ("a document of Microsoft Office with a password", "save it without one"),
    _OLE: ("an old document of Microsoft Office", "save it as docx, a workbook as CSV in UTF-8"),
    rb"\x89PNG|\xff\xd8\xff|GIF8[79]a": ("an image", "recognize its text first, as with tesseract"),
    _ARCHIVE: ("an archive", "extract the files in it"),
    rb"\s*\{\\rtf": ("an RTF document", "save it as docx or text"),
    BZIP2: ("a bzip2 file", "decompress it with bunzip2"),
    XZ: ("an xz file", "decompress it with unxz"),
    ZSTD: ("a zstd file", "decompress it with unzstd"),
    rb"\x5d\x00\x00.{2}(\xff{8}|.{5}\x00{3})": ("an lzma file", "decompress it with unlzma"),
    rb"\x04\x22\x4d\x18|\x02\x21\x4c\x18": ("an lz4 file", "decompress it with unlz4"),
    rb"\x1f\x9d": ("a file of compress (.Z)", "decompress it with uncompress"),
    rb"LZIP[\x00\x01]": ("an lzip file", "decompress it with lzip -d"),
    rb"\xff\x06\x00\x00sNaPpY": ("a snappy file", "decompress it with snzip -d"),
    rb"%PDF-\d": ("a PDF document", "export its text"),
    rb"ARROW1\x00": ("an Arrow file", "convert its records to one JSON object a line"),
}
PRETTY = "pretty-printed JSON", "write one object a line with jq -c ."
_TEXT = {
    _UTF32: ("UTF-32 text", "convert it to UTF-8 with iconv -f UTF-32 -t UTF-8"),
    _UTF16: ("UTF-16 text", "convert it to UTF-8 with iconv -f UTF-16 -t UTF-8"),
    rb"\s*\{[ \t]*\r?\n\s*\"": PRETTY,
    rb"\s*<(?i:!doctype|html|\?xml)": ("an HTML or XML file", "give it to nq ask as a page"),
}


def binary_kind(head: bytes) -> FileKind | None:
    """Returns the kind of a file by its first bytes, ``None`` if it is not a known binary one.

    >>> binary_kind(b"%PDF-1.7"), binary_kind(b"{}")
    (('a PDF document', 'export its text'), None)
    """
    if is_tfrecord(head):
        return "a TFRecord file", "give the records from which it was made"
    return _first_match(_BINARY, head)


def check_whole(path: str | Path, content: bytes | None = None) -> None:
    """Raises ``ValueError`` if there is only a pointer of Git LFS in place of a file.

    ``content`` are the first bytes of the file, if they are read already.
    """
    if content is None:
        with open(path, "rb") as file:
            content = file.read(POINTER_BYTES)
    if re.match(LFS_POINTER, content):
        raise ValueError(f"{path} is {': '.join(_BINARY[LFS_POINTER])}")


def text_kind(head: bytes) -> FileKind | None:
    """Returns the kind of text in which no line is a record, ``None`` if it is not a known one."""
    return _first_match(_TEXT, head)


def _first_match(kinds: dict[bytes, T], head: bytes) -> T | None:
    return next((kind for start, kind in kinds.items() if re.match(start, head, re.DOTALL)), None)
