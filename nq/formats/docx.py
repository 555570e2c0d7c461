"""Word documents (docx): their paragraphs, lists and tables as HTML, by mammoth."""

from __future__ import annotations

import io
import zipfile
from contextlib import suppress

from nq.extras import require
from nq.formats.fields import LIMITS


def is_docx(data: bytes) -> bool:
    """Returns whether a file is a Word document."""
    with suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(data)) as archive:
        return "word/document.xml" in archive.namelist()
    return False


def docx_html(data: bytes, name: str) -> str:
    """Returns the text of a Word document as HTML; errors are those of ``nq.formats.pdf``."""
    require("docx")
    import mammoth

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            LIMITS.check(document_bytes=sum(one.file_size for one in archive.infolist()))
        html = mammoth.convert_to_html(io.BytesIO(data), convert_image=lambda image: [])
    except Exception as error:  # mammoth raises many kinds for damaged documents
        raise ValueError(
            f"{name} is a Word document that cannot be read ({error}): save it again"
        ) from error
    return str(html.value)
