"""Word documents (docx): their paragraphs, lists and tables as a page.

A docx file is a zip archive; the text is in ``word/document.xml`` (ECMA-376, part 1, chapter 17).
"""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any

from lxml import etree

from nq.formats.fields import LIMITS
from nq.formats.html import PageBuilder
from nq.records import Page

DOCUMENT = "word/document.xml"
_TEXTS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_TAGS = {"tbl": "table", "tr": "tr", "tc": "td"}
_DROPPED = ("del", "moveFrom", "instrText", "Fallback", "txbxContent")
_HEADING = re.compile(r"(?:heading|title)", re.IGNORECASE)


def is_docx(data: bytes) -> bool:
    """Returns whether a file is a Word document."""
    if not data.startswith(b"PK\x03\x04"):
        return False
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return DOCUMENT in archive.namelist()
    except (zipfile.BadZipFile, ValueError):
        return False


def docx_page(data: bytes, name: str) -> Page:
    """Returns the page of a Word document; ``ValueError`` calls it ``name``."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            LIMITS.check(document_bytes=archive.getinfo(DOCUMENT).file_size)
            parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True)
            root = etree.fromstring(archive.read(DOCUMENT), parser)
    except (zipfile.BadZipFile, RuntimeError, ValueError, OSError, etree.XMLSyntaxError) as error:
        raise ValueError(
            f"{name} is a Word document that cannot be read ({error}): save it again, without a "
            "password"
        ) from error
    builder = PageBuilder()
    if root is not None:
        _add(builder, root)
    return builder.close()


def _add(builder: PageBuilder, parent: Any) -> None:
    """Adds what is in an element of the document."""
    for element in parent.iterchildren(etree.Element):
        kind = etree.QName(element).localname
        if kind == "t":
            builder.data(element.text or "")
        elif kind in _TEXTS:
            builder.data(_TEXTS[kind])
        elif kind == "p" or kind in _TAGS:
            tag = _TAGS.get(kind) or _paragraph_tag(element)
            builder.start(tag, {})
            _add(builder, element)
            builder.end(tag)
        elif kind not in _DROPPED:
            _add(builder, element)


def _paragraph_tag(element: Any) -> str:
    """Returns the tag of a paragraph, an item of a list, or a heading."""
    styles = element.xpath("./*[local-name()='pPr']/*[local-name()='pStyle']/@*")
    return "h2" if any(map(_HEADING.match, styles)) else "p"
