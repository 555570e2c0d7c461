"""Names files that cannot hold records as lines: archives, documents, JSON arrays, UTF-16.

A file is named only where its first bytes leave no doubt. Any other file is read line by line, and
what is no record becomes a dead letter, so that one bad line never costs the rest of a file.
"""

from __future__ import annotations

import re
import zlib
from itertools import islice

from nq.formats.limits import LIMITS
from nq.formats.lines import BOM, GZIP_MAGIC, nonblank_lines
from nq.formats.tfrecord_file import is_tfrecord

HEAD_BYTES = 16 << 10
MAX_LINES = 100
_TAR_MAGIC = slice(257, 262), b"ustar"
_EXTRACT, _EXPORT = "extract the files in it", "export its text"
_CONVERT = "convert its records to one JSON object a line"
_BINARY = {
    rb"\x1f\x8b": ("a gzip file", "decompress it with gunzip"),
    rb"PAR1": ("a parquet file", "give it as it is, with a name that ends in .parquet"),
    rb"PK\x03\x04.{26}(\[Content_Types\]\.xml|_rels/|xl/)": (
        "a document of Microsoft Office",
        "save it as text, a workbook as CSV in UTF-8",
    ),
    rb"PK(\x03\x04|\x05\x06)": ("a zip archive", _EXTRACT),
    rb"7z\xbc\xaf\x27\x1c": ("a 7z archive", _EXTRACT),
    rb"Rar!\x1a\x07": ("a RAR archive", _EXTRACT),
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": ("a bzip2 file", "decompress it with bunzip2"),
    rb"\xfd7zXZ\x00": ("an xz file", "decompress it with unxz"),
    rb"\x28\xb5\x2f\xfd": ("a zstd file", "decompress it with unzstd"),
    rb"\x04\x22\x4d\x18": ("an lz4 file", "decompress it with unlz4"),
    rb"\x1f\x9d": ("a file of the program compress", "decompress it with uncompress"),
    rb"%PDF-\d": ("a PDF document", _EXPORT),
    rb"\{\\rtf\d": ("an RTF document", _EXPORT),
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": ("a document of Microsoft Office", _EXPORT),
    rb"SQLite format 3\x00": ("an SQLite database", _CONVERT),
    rb"ARROW1\x00": ("an Arrow file", _CONVERT),
    rb"ORC[\x00-\x1f]": ("an ORC file", _CONVERT),
    rb"Obj\x01": ("an Avro file", _CONVERT),
    rb"\x89HDF\r\n\x1a\n": ("an HDF5 file", _CONVERT),
    rb"\x89PNG\r\n|GIF8[79]a|\xff\xd8\xff": ("an image", "give text"),
    rb"\x7fELF": ("a program", "give text"),
}
_UTF32 = "UTF-32 text", "convert it to UTF-8 with iconv -f UTF-32 -t UTF-8"
_UTF16 = "UTF-16 text", "convert it to UTF-8 with iconv -f UTF-16 -t UTF-8"
_TEXT = {  # UTF-16 and UTF-32 with a byte order mark, or JSON without one
    rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff|[\[{]\x00\x00\x00|\x00\x00\x00[\[{]": _UTF32,
    rb"\xff\xfe|\xfe\xff|[\[{]\x00[^\x00]\x00|\x00[\[{]\x00[^\x00]": _UTF16,
    rb"\s*\[\s*\{": ("a JSON array", "write one object a line with jq -c '.[]'"),
    rb"\s*\{[ \t]*\r?\n\s*\"": ("pretty-printed JSON", "write one object a line with jq -c ."),
    rb"\s*<(?i:!doctype|html|\?xml)": ("an HTML or XML file", "give it to nq ask as a page"),
}
_RECORD_START = re.compile(rb"\{[ \t]*\"")
_NO_RECORDS = f"no file of records, by its first {MAX_LINES} lines", "give another file"

Kind = tuple[str, str]
"""What a file is, and what to do with it."""


def check_kind(path: str) -> None:
    """Checks that a file may hold records as lines.

    Args:
        path: of a file that is not parquet.

    Raises:
        ValueError: it is of a known other kind; the text says which and what to do.
        OSError: it cannot be read.
    """
    head = head_of(path)
    kind = binary_kind(head) or _text_kind(path, head)
    if kind:
        name = f"{kind[0]} in a gzip file" if _is_gzip(path) else kind[0]
        raise ValueError(
            f"{path} is {name}: {kind[1]}; expected one JSON object a line, plain or gzip, "
            "parquet, CSV, or a file of SQuAD"
        )


def head_of(path: str) -> bytes:
    """Returns the first bytes of a file, decompressed if it is gzip, without a mark of UTF-8.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
    if head.startswith(GZIP_MAGIC):
        head = _decompressed(head)
    return head.removeprefix(BOM)


def _is_gzip(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def binary_kind(head: bytes) -> Kind | None:
    """Returns the kind of a file by its first bytes, ``None`` if it is not a known binary one.

    >>> binary_kind(b"%PDF-1.7"), binary_kind(b"{}")
    (('a PDF document', 'export its text'), None)
    """
    where, tar = _TAR_MAGIC
    if head[where] == tar:
        return "a tar archive", _EXTRACT
    if is_tfrecord(head):
        return "a TFRecord file", "give the records from which it was made"
    return _match(_BINARY, head)


def _match(kinds: dict[bytes, Kind], head: bytes) -> Kind | None:
    return next(
        (kind for pattern, kind in kinds.items() if re.match(pattern, head, re.DOTALL)), None
    )


def _decompressed(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
    except zlib.error:  # the lines before the damage are read
        return b""


def _text_kind(path: str, head: bytes) -> Kind | None:
    """Returns the kind of a text file, ``None`` if one of its first lines may be a record.

    In an array with one object a line, all but the last end in a comma.
    """
    if _RECORD_START.match(head):
        return None
    records = of_array = n_lines = 0
    for _, line in islice(nonblank_lines(path, LIMITS), MAX_LINES):
        n_lines += 1
        if isinstance(line, bytes):
            records += bool(_RECORD_START.match(line)) and line.endswith(b"}")
            of_array += line.endswith(b"},") or line == b"]"
    if records > of_array:
        return None
    return _match(_TEXT, head) or (_NO_RECORDS if n_lines == MAX_LINES else None)
