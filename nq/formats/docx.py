"""Word documents (docx): their paragraphs, lists and tables as HTML, by mammoth."""

import io
import re
import zipfile
from contextlib import suppress

from nq.extras import require
from nq.formats.fields import LIMITS, RecordError

MAX_NODES, MAX_FILES = 800_000, 10_000
"""Elements and attributes, and files: mammoth and zipfile take up to 1 kB of memory for each."""
_NODE = re.compile(rb"<[\w:]+[\s/>]|\w\s*=\s*[\"']")
_PARAGRAPH = re.compile(rb"<(?:\w+:)?p[\s/>]")
_CELL = re.compile(r"<t[dh]\b.*?</t[dh]>", re.DOTALL)
_BLOCK_TAG = re.compile(r"</?(?:p|h[1-6]|[ou]l|li)\b[^>]*>")


def is_docx(data: bytes) -> bool:
    """Returns whether a file is a Word document."""
    if data.count(b"PK\1\2") > MAX_FILES:
        return False
    with suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(data)) as archive:
        return "word/document.xml" in archive.namelist()
    return False


def docx_html(data: bytes, name: str) -> str:
    """Returns the text of a Word document as HTML; errors are those of ``nq.formats.pdf``.

    Cells have no paragraphs and lists, so that a row of a table is one line.
    """
    require("docx")
    import mammoth

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check(archive)
        html = mammoth.convert_to_html(io.BytesIO(data), convert_image=lambda image: [])
    except Exception as error:  # mammoth raises many kinds for damaged documents
        problem = f"that cannot be read ({str(error) or 'out of memory'}): save it again"
        raise ValueError(f"{name} is a Word document {problem}") from error
    return _CELL.sub(lambda cell: _BLOCK_TAG.sub("<br>", cell[0]), str(html.value))


def _check(archive: zipfile.ZipFile) -> None:
    """Raises ``RecordError`` if the XML takes too much memory, even if it has no text."""
    n_nodes = n_paragraphs = n_bytes = 0
    for one in archive.infolist():
        n_bytes += max(0, one.file_size - one.compress_size)  # 0 of most pictures
        LIMITS.check(bytes=n_bytes, document_bytes=one.file_size)
        xml = archive.read(one).replace(b"\0", b"")  # of UTF-16
        n_nodes += sum(1 for _ in _NODE.finditer(xml))
        n_paragraphs += sum(1 for _ in _PARAGRAPH.finditer(xml))
        LIMITS.check(candidates=n_paragraphs)
        if n_nodes > MAX_NODES or b"<!ENTITY" in xml:
            raise RecordError(f"too large: more than {MAX_NODES} XML nodes, or entities")
