"""A file that a person has at hand -> a page: plain text, HTML, or a record of a jsonl file."""

from __future__ import annotations

import codecs
import re
from dataclasses import replace
from pathlib import Path

from nq.formats import inputs
from nq.formats.fields import RecordError
from nq.formats.html import Writer, from_html
from nq.formats.words import spelling
from nq.records import Example, Page

TEXT_SUFFIXES, HTML_SUFFIXES = (".txt", ".text"), (".html", ".htm", ".xhtml")
_BOMS = (  # the longer ones first: that of UTF-32 begins as that of UTF-16
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


def read_page(path: str, record: str | None = None) -> Page:
    """The page in a file, which its name tells to be text, HTML or records, or else its content.

    Args:
        path: the file.
        record: of a jsonl file the record with that number (from 1) or that example_id,
            whichever comes first; by default the first.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no such record, no text, or something else than text.
    """
    if path.endswith(inputs.SHARD_SUFFIXES):
        page = from_record(_record(path, record))
    elif record is not None:
        raise ValueError(
            f"{path} holds no records, so that record {record} cannot be chosen; "
            f"files of records end in {', '.join(inputs.SHARD_SUFFIXES)}"
        )
    else:
        return decode_page(Path(path).read_bytes(), path)
    return _with_text(page, path)


def decode_page(data: bytes, name: str) -> Page:
    """The page in the bytes of a text or HTML file.

    Raises:
        ValueError: it holds no text, or something else than text.
    """
    text = decode_text(data, name)
    is_html = name.lower().endswith(HTML_SUFFIXES) or (
        not name.lower().endswith(TEXT_SUFFIXES) and _LOOKS_LIKE_HTML.search(text)
    )
    return _with_text(from_html(text) if is_html else from_text(text), name)


def from_text(text: str) -> Page:
    """The page of a plain text, whose paragraphs are parted by blank lines."""
    written = Writer()
    for paragraph in _BLANK_LINES.split(text):
        if paragraph.strip():
            written.start("p", {})
            written.data(paragraph)
            written.end("p")
    return written.close().page()


def from_record(example: Example) -> Page:
    """The page of a record; its text is gone, so that it is spelled by rules.

    Words whose bytes touch stand close, whatever the rules say.
    """
    spelled = spelling(example.tokens, example.is_html)
    for i, html in enumerate(example.is_html[:-1]):
        if not html and not example.is_html[i + 1] and example.adjacent(i, i + 1):
            spelled[i] = spelled[i].rstrip(" ")
    return Page(example, spelled)


def decode_text(data: bytes, name: str) -> str:
    """Text in any usual encoding: by its byte order mark, UTF-8, as HTML declares, or else
    Windows-1252; with plain line ends.

    Raises:
        ValueError: zero bytes, which no text holds.
    """
    marked = next((encoding for bom, encoding in _BOMS if data.startswith(bom)), None)
    if not marked and b"\0" in data:
        raise ValueError(
            f"{name} is no text (byte {data.index(0) + 1} is 0x00); expected plain text or HTML"
        )
    text = data.decode(marked or "utf-8", "replace")
    if not marked and 2 * text.count(_UNREADABLE) > sum(not c.isascii() for c in text):
        text = _decode_declared(data)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decode_declared(data: bytes) -> str:
    """Text that is not in UTF-8, even where it says so."""
    declared = _CHARSET.search(data[:4096])
    try:
        encoding = codecs.lookup(declared[1].decode()).name if declared else _FALLBACK
        return data.decode(encoding if encoding != "utf-8" else _FALLBACK, "replace")
    except (LookupError, ValueError):  # no such encoding, or none of text
        return data.decode(_FALLBACK, "replace")


def _with_text(page: Page, name: str) -> Page:
    if all(page.example.is_html):
        raise ValueError(f"{name} holds no text; give a page with something to read")
    return page


def _record(path: str, wanted: str | None) -> Example:
    problem = f"{path} holds no records"
    for number, (source, item) in enumerate(inputs.read_examples(path), 1):
        named = wanted in (None, str(number))
        if isinstance(item, Example):
            if named or str(item.example_id) == wanted:
                return item
        elif named:
            raise RecordError(f"{path}, line {source.line}: {item.reason}")
        problem = f"none of the {number} records of {path} is number {wanted} or has that id"
    raise ValueError(problem)


def with_question(page: Page, question: str) -> Example:
    """The page's example with ``question`` for its own."""
    return replace(page.example, question=question, annotations=None)
