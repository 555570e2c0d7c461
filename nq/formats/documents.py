"""Pages of text, of HTML, of the bytes of a document, and of records."""

import codecs
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import webencodings
from lxml import etree

from nq.answers import Page
from nq.errors import check_argument
from nq.formats import docx, markdown
from nq.formats.fields import LIMITS, RecordError
from nq.formats.html import PageBuilder, parse_html
from nq.formats.lines import binary_kind
from nq.formats.markup import MARKUP
from nq.formats.pdf import pdf_text
from nq.formats.words import spellings
from nq.records import Example, Span, readable_text
from nq.text import counted, format_bytes

TEXT_SUFFIXES = (".txt", ".text")
HTML_SUFFIXES = (".html", ".htm", ".xhtml")
SUFFIXES = (
    *TEXT_SUFFIXES,
    *HTML_SUFFIXES,
    *markdown.SUFFIXES,
    ".pdf",
    *docx.SUFFIXES,
)
"""Suffixes of the documents in a folder."""
PDF = b"%PDF-"
_PACKED = (PDF, b"PK\x03\x04")
_BOMS = {  # longest first, because the mark of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    "<?x".encode("utf-16-le"): "utf-16-le",
    "<?x".encode("utf-16-be"): "utf-16-be",
}
_CONTROL = bytes({*range(32)} - {*b"\t\n\v\f\r\x1b"})
MAX_CONTROL_SHARE = 0.02
"""Control characters in a text at most; of other binary data they are about a tenth."""
_FALLBACK = "cp1252"
_UNREADABLE = "\ufffd"
_X_USER = "x-user-defined"
PRESCANNED_BYTES = 1024
_XML_DECLARATION = re.compile(r"""<\?xml\b[^>]*?\bencoding\s*=\s*(["'])([^"'>]*)\1""")
_CONTENT = re.compile(r"""charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"']+))""")
_LINE_END = r"(?>\r\n|[\n\r])"
_BLANK_LINES = re.compile(rf"{_LINE_END}[^\S\n\r]*{_LINE_END}\s*|[\f\u2029]")
_LOOKS_LIKE_HTML = re.compile(
    r"\A\s*<(?:!doctype\s+html|html|head|body)\b"
    r"|</(?:p|div|h[1-6]|table|t[dr]|[uod]l|li|body|html|title|section|article)\s*>",
    re.IGNORECASE,
)


def read_document(path: str) -> Page:
    """Returns the page of a file, with the file's name; errors are those of ``decode_page``."""
    with open(path, "rb") as file:
        return replace(
            decode_page(file.read(LIMITS.document_bytes + 1), path),
            name=path,
        )


def decode_page(data: bytes, name: str) -> Page:
    """Returns the page of a document of text, HTML, Markdown, PDF or Word.

    A document that is too large, damaged, without text or of another kind is a ``ValueError``,
    which calls it ``name``. An ``Error`` tells to install the package that reads it.
    """
    limit = LIMITS.document_bytes if data.startswith(_PACKED) else LIMITS.bytes
    if len(data) > limit:
        raise ValueError(f"{name} is larger than {format_bytes(limit)}: give it in several parts")
    if data.startswith(PDF) or (name.lower().endswith(".pdf") and not binary_kind(data)):
        return page_from_text(pdf_text(data, name), name)
    if docx.is_docx(data):
        # the HTML is not the file, so that its places are none of it
        html = docx.docx_html(data, name, decode_text)
        return _checked(
            lambda text: parse_html(text, lambda _: PageBuilder()),
            html,
            name,
        )
    text = decode_text(data, name)
    if name.lower().endswith(docx.SUFFIXES):
        raise ValueError(f"{name} is not a Word document but text; rename it, or save it as docx")
    return page_of(text, name)


def page_of(text: str, name: str) -> Page:
    """Returns the page of plain text, Markdown or HTML, by the suffix of ``name``, or by content.

    >>> page_of("<p>It <b>rains</b>.</p>", "the page").example.tokens
    ['<P>', 'It', 'rains', '.', '</P>']
    """
    ends = name.lower().endswith
    if ends(markdown.SUFFIXES):
        return _checked(markdown.parse_markdown, text, name)
    if ends(HTML_SUFFIXES) or (not ends(TEXT_SUFFIXES) and _LOOKS_LIKE_HTML.search(text)):
        return page_from_html(text, name)
    return page_from_text(text, name)


def page_from_text(text: str, name: str = "the page") -> Page:
    """Returns the page of a plain text, whose paragraphs are separated by blank lines.

    Raises:
        ValueError: The text, which the error calls ``name``, has no words or is not a ``str``.

    >>> page_from_text("It rains.").example.tokens
    ['<P>', 'It', 'rains', '.', '</P>']
    """
    check_argument(
        isinstance(text, str),
        "text",
        text,
        "a str; read a file with nq.read_page",
    )
    return _checked(_paragraphs, text, name)


def _paragraphs(text: str) -> Page:
    LIMITS.check(characters=len(text))
    builder = PageBuilder()
    start = 0
    for blank in [*_BLANK_LINES.finditer(text), None]:
        paragraph = text[start : blank.start() if blank else None]
        if paragraph.strip():
            builder.start("p", {})
            builder.data(paragraph, start)
            builder.end("p")
        start = blank.end() if blank else start
    return builder.close(text)


def page_from_html(html: str, name: str = "the page") -> Page:
    """Returns the page of an HTML text, as ``nq.formats.html`` reads it.

    Raises:
        ValueError: The page, which the error calls ``name``, displays no words, or ``html`` is not
            a ``str``.

    >>> page_from_html("<p>It <b>rains</b>.").example.tokens
    ['<P>', 'It', 'rains', '.', '</P>']
    """
    check_argument(
        isinstance(html, str),
        "html",
        html,
        "a str; read a file with nq.read_page",
    )
    return _checked(parse_html, html, name)


def _checked(read: Callable[[Any], Page], source: Any, name: str) -> Page:
    """Returns the page that is read from a source and called ``name``, if it has words."""
    try:
        page = read(source)
        LIMITS.check_example(page.example)
    except RecordError as error:
        raise ValueError(f"{name} is {error}; give it in several parts") from error
    if all(page.example.is_html):
        n_tags = len(page.example.tokens)
        raise ValueError(f"{name} has no text that a browser displays: {n_tags} tags and no words")
    return page


def page_from_record(example: Example, name: str = "the page") -> Page:
    """Returns the page of an example, spelled by rules because the original text is lost."""
    span = Span(0, len(example.tokens))
    return _checked(lambda item: Page(item, record_spelling(item, span)), example, name)


def record_spelling(example: Example, span: Span) -> Sequence[str]:
    """Returns the spelling of a span; words whose bytes are adjacent are joined."""
    if example.original is not None:
        return example.original.spelling[span.start : span.end]
    html = example.is_html[span.start : span.end]
    spelled = spellings(example.tokens[span.start : span.end], html)
    for i, (is_html, next_is_html) in enumerate(pairwise(html)):
        if not (is_html or next_is_html) and example.adjacent(span.start + i, span.start + i + 1):
            spelled[i] = spelled[i].rstrip(" ")
    return spelled


def one_line(example: Example, span: Span) -> str:
    """Returns the readable text of a span in one line."""
    return readable_text(record_spelling(example, span)).replace("\n", " ")


def decode_text(data: bytes, name: str) -> str:
    """Decodes text by its byte order mark, as UTF-8, as HTML declares it, or as Windows-1252."""
    if kind := binary_kind(data):
        raise ValueError(f"{name} is {kind[0]}: {kind[1]}; expected plain text or HTML")
    marked = next(
        (encoding for bom, encoding in _BOMS.items() if data.startswith(bom)),
        None,
    )
    n_control = len(data) - len(data.translate(None, _CONTROL))
    if not marked and (b"\0" in data or n_control > MAX_CONTROL_SHARE * len(data)):
        problem = f"it has {counted(n_control, 'control character')}"
        raise ValueError(f"{name} is not a text file ({problem}); give plain text or HTML")
    text = data.decode(marked or "utf-8", "replace")
    if marked:
        return text
    n_bad = text.count(_UNREADABLE)
    declared = _declared_encoding(data)
    if declared and declared.name != "utf-8" and (n_bad or declared.name == "iso-2022-jp"):
        return str(declared.codec_info.decode(data, "replace")[0])
    if 2 * n_bad <= sum(not c.isascii() for c in text):  # even if it declares to be another
        return text
    return data.decode(_FALLBACK, "replace")


def _declared_encoding(data: bytes) -> webencodings.Encoding | None:
    """Returns the encoding that the first bytes declare, as the prescan of the HTML standard."""
    text = data[:PRESCANNED_BYTES].decode("latin-1").lower()
    labels = []
    for tag in MARKUP.finditer(text):
        if tag["tag"] == "meta" and tag[0].endswith(">"):
            attributes = etree.HTML(tag[0]).find(".//meta").attrib
            content = _CONTENT.search(attributes.get("content", ""))
            if "charset" in attributes:
                labels.append(attributes["charset"])
            elif content and attributes.get("http-equiv") == "content-type":
                labels.append("".join(content.groups("")))
    if declaration := _XML_DECLARATION.match(text):
        labels.append(declaration[2])
    encoding = next(filter(None, map(webencodings.lookup, labels)), None)
    if encoding and encoding.name.startswith("utf-16"):  # its bytes would be no declaration
        return webencodings.UTF8
    return webencodings.lookup(_FALLBACK) if encoding and encoding.name == _X_USER else encoding
