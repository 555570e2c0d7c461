"""Kinds of files that hold neither records nor text: archives, documents, UTF-16, JSON arrays.

A file is named only where its first bytes leave no doubt.
"""

from __future__ import annotations

import re

from nq.formats.tfrecord_file import is_tfrecord

Kind = tuple[str, str]
"""What a file is, and what to do with it."""

_BINARY = {
    rb"\x1f\x8b": ("a gzip file", "decompress it with gunzip"),
    rb"PAR1": ("a parquet file", "give it as it is, with a name that ends in .parquet"),
    rb"PK\x03\x04.{26}(\[Content_Types\]\.xml|_rels/|xl/)": (
        *("a document of Microsoft Office", "save it as text, a workbook as CSV in UTF-8"),
    ),
    rb"PK(\x03\x04|\x05\x06)|7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|.{257}ustar": (
        *("an archive", "extract the files in it"),
    ),
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": ("a bzip2 file", "decompress it with bunzip2"),
    rb"\xfd7zXZ\x00": ("an xz file", "decompress it with unxz"),
    rb"\x28\xb5\x2f\xfd": ("a zstd file", "decompress it with unzstd"),
    rb"%PDF-\d": ("a PDF document", "export its text"),
    rb"ARROW1\x00": ("an Arrow file", "convert its records to one JSON object a line"),
}
_TEXT = {  # UTF-16 and UTF-32 with a byte order mark, or JSON without one
    rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff|[\[{]\x00\x00\x00|\x00\x00\x00[\[{]": (
        *("UTF-32 text", "convert it to UTF-8 with iconv -f UTF-32 -t UTF-8"),
    ),
    rb"\xff\xfe|\xfe\xff|[\[{]\x00[^\x00]\x00|\x00[\[{]\x00[^\x00]": (
        *("UTF-16 text", "convert it to UTF-8 with iconv -f UTF-16 -t UTF-8"),
    ),
    rb"\s*\[\s*\{": ("a JSON array", "write one object a line with jq -c '.[]'"),
    rb"\s*\{[ \t]*\r?\n\s*\"": ("pretty-printed JSON", "write one object a line with jq -c ."),
    rb"\s*<(?i:!doctype|html|\?xml)": ("an HTML or XML file", "give it to nq ask as a page"),
}


def binary_kind(head: bytes) -> Kind | None:
    """Returns the kind of a file by its first bytes, ``None`` if it is not a known binary one.

    >>> binary_kind(b"%PDF-1.7"), binary_kind(b"{}")
    (('a PDF document', 'export its text'), None)
    """
    if is_tfrecord(head):
        return "a TFRecord file", "give the records from which it was made"
    return _first_match(_BINARY, head)


def text_kind(head: bytes) -> Kind | None:
    """Returns the kind of text in which no line is a record, ``None`` if it is not a known one."""
    return _first_match(_TEXT, head)


def _first_match(kinds: dict[bytes, Kind], head: bytes) -> Kind | None:
    matches = (kind for start, kind in kinds.items() if re.match(start, head, re.DOTALL))
    return next(matches, None)
