"""Reads a page from a file: plain text, HTML, or a record of a jsonl or parquet file."""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from nq.errors import check_argument
from nq.formats import inputs
from nq.formats.fields import RecordError
from nq.formats.html import PageBuilder, parse_html
from nq.formats.kinds import binary_kind
from nq.formats.limits import LIMITS
from nq.formats.words import spellings
from nq.records import Example, Page

TEXT_SUFFIXES, HTML_SUFFIXES = (".txt", ".text"), (".html", ".htm", ".xhtml")
_BOMS = (  # longest first, because the mark of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_FALLBACK, _UNREADABLE = "cp1252", "\ufffd"
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)
_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*|[\f\u2029]")
_LOOKS_LIKE_HTML = re.compile(
    r"\s*<(?:!doctype\s+html|html|head|body)\b"
    r"|</(?:p|div|h[1-6]|table|t[dr]|[uod]l|li|body|html|title|section|article)\s*>",
    re.IGNORECASE,
)


def read_page(path: str | Path, record: str | int | None = None) -> Page:
    """Reads a page from a file of text, HTML or NQ records.

    The suffix of the file's name tells which, or else the content.

    Args:
        path: The file.
        record: In a file of records, the record's number (from 1) or its example_id, whichever
            comes first; by default the first record.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file has no such record, no text, or is not a text file.
    """
    name = inputs.path_text(path)
    if name.endswith(inputs.SHARD_SUFFIXES):
        return page_from_record(_record(name, None if record is None else str(record)), name)
    if record is not None:
        raise ValueError(
            f"{name} is not a file of records, so that record {record} cannot be chosen; "
            f"files of records end in {', '.join(inputs.SHARD_SUFFIXES)}"
        )
    with open(name, "rb") as file:
        return decode_page(file.read(LIMITS.bytes + 1), name)


def _record(path: str, wanted: str | None) -> Example:
    inputs.check_files([path])
    number = 0
    for number, (source, item) in enumerate(inputs.read_records(path), 1):
        matches = wanted in (None, str(number))
        if isinstance(item, Example):
            if matches or str(item.example_id) == wanted:
                return item
        elif matches:
            raise RecordError(f"{path}, line {source.line}: {item.reason}")
    if number:
        raise ValueError(f"none of the {number} records of {path} has number or id {wanted}")
    raise ValueError(f"{path} has no records; give a file with at least one record")


def decode_page(data: bytes, name: str) -> Page:
    """Returns the page in the bytes of a text or HTML file; errors call it ``name``.

    Raises:
        ValueError: The bytes have no text, or are not those of a text file.
    """
    with _naming(name):
        LIMITS.check(bytes=len(data))
    text = decode_text(data, name)
    is_html = name.lower().endswith(HTML_SUFFIXES) or (
        not name.lower().endswith(TEXT_SUFFIXES) and _LOOKS_LIKE_HTML.search(text)
    )
    return page_from_html(text, name) if is_html else page_from_text(text, name)


def page_from_text(text: str, name: str = "the page") -> Page:
    """Returns the page of a plain text, whose paragraphs are separated by blank lines.

    Errors call the page ``name``.

    Raises:
        ValueError: The text has no words, or is not a ``str``.

    >>> page_from_text("It rains.").example.tokens
    ['<P>', 'It', 'rains', '.', '</P>']
    """
    check_argument(isinstance(text, str), "text", text, "a str; read a file with nq.read_page")
    with _naming(name):
        LIMITS.check(characters=len(text))
    builder = PageBuilder()
    for paragraph in _BLANK_LINES.split(text):
        if paragraph.strip():
            builder.start("p", {})
            builder.data(paragraph)
            builder.end("p")
    return _with_words(builder.close().page(), name)


def page_from_html(html: str, name: str = "the page") -> Page:
    """Returns the page of an HTML text, as ``nq.formats.html`` reads it.

    Errors call the page ``name``.

    Raises:
        ValueError: The page displays no words, its elements are nested too deeply, or ``html`` is
            not a ``str``.

    >>> page_from_html("<p>It <b>rains</b>.").example.tokens
    ['<P>', 'It', 'rains', '.', '</P>']
    """
    check_argument(isinstance(html, str), "html", html, "a str; read a file with nq.read_page")
    with _naming(name):
        page = parse_html(html)
    return _with_words(page, name)


def page_from_record(example: Example, name: str = "the page") -> Page:
    """Returns the page of an example, spelled by rules because the original text is lost.

    Words whose bytes are adjacent are joined, whatever the rules are. A page without words is a
    ``ValueError``, which calls the page ``name``.
    """
    spelled = spellings(example.tokens, example.is_html)
    for i, html in enumerate(example.is_html[:-1]):
        if not html and not example.is_html[i + 1] and example.adjacent(i, i + 1):
            spelled[i] = spelled[i].rstrip(" ")
    return _with_words(Page(example, spelled), name)


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Puts the name of a page before the error that it is too large."""
    try:
        yield
    except RecordError as error:
        raise ValueError(f"{name} is {error}") from error


def _with_words(page: Page, name: str) -> Page:
    with _naming(name):
        LIMITS.check_example(page.example)
    if all(page.example.is_html):
        raise ValueError(
            f"{name} has no text: found {len(page.example.tokens)} tags and no words; give a page "
            "with text that a browser displays"
        )
    return page


def decode_text(data: bytes, name: str) -> str:
    """Decodes text by its byte order mark, as UTF-8, as HTML declares it, or as Windows-1252.

    Line ends of any kind become a line feed.

    Raises:
        ValueError: There are zero bytes, so that ``name`` is not a text file.
    """
    if kind := binary_kind(data):
        raise ValueError(f"{name} is {kind[0]}: {kind[1]}; expected plain text or HTML")
    marked = next((encoding for bom, encoding in _BOMS if data.startswith(bom)), None)
    if not marked and b"\0" in data:
        raise ValueError(
            f"{name} is not a text file (byte {data.index(0) + 1} is 0x00); give plain text or HTML"
        )
    text = data.decode(marked or "utf-8", "replace")
    if not marked and 2 * text.count(_UNREADABLE) > sum(not c.isascii() for c in text):
        text = _decode_declared(data)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decode_declared(data: bytes) -> str:
    """Decodes text that is not UTF-8, even if it declares to be."""
    declared = _CHARSET.search(data[:4096])
    try:
        encoding = codecs.lookup(declared[1].decode()).name if declared else _FALLBACK
        return data.decode(encoding if encoding != "utf-8" else _FALLBACK, "replace")
    except (LookupError, ValueError):  # the encoding is unknown, or not one of text
        return data.decode(_FALLBACK, "replace")


def with_question(page: Page, question: str) -> Example:
    """Returns the page's example with ``question``, without annotations."""
    return replace(page.example, question=question, annotations=None)
