"""PDF documents: their text by pypdf, with paragraphs, and a form feed behind each page."""

import io
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from statistics import mode
from typing import Any

from nq.extras import require
from nq.formats.fields import LIMITS
from nq.text import ABBREVIATIONS, counted

HEADING = 1.1
"""A line of a larger font, relative to that of most characters of its page, is a heading."""
SHORT_LINE = 0.8
"""The last line of a paragraph is at most so long, relative to the longest line of its page."""
_ITEM = re.compile(r"[•▪◦‣●○■\u2013*]\s|\(?(?:\d{1,3}|[a-z]|[ivx]{2,4})[.)]\s|\(?[A-Z]\)\s")
_ABBREVIATION = re.compile(rf"(?:^|[\s(])(?:[A-Z]|{'|'.join(map(re.escape, ABBREVIATIONS))})\.$")
_HYPHEN = re.compile(r"(?<=[^\W\d_])(?:[-\u2010]\n(?=[^\W\d_A-Z])|\u00ad\n(?=[^\W\d_]))")


def pdf_text(data: bytes, name: str) -> str:
    """Returns the text of a PDF document, in which blank lines separate paragraphs.

    A document with a password, without text or with damage is a ``ValueError``, which calls it
    ``name``. An ``Error`` tells to install the package that reads it.
    """
    require("pdf")
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it reports what it repairs
    try:
        reader = PdfReader(io.BytesIO(data))
        locked = reader.is_encrypted and not reader.decrypt("")
        pages = list[str]()
        n_characters = 0
        for page in () if locked else reader.pages:
            pages.append(_with_headings_apart(page))
            n_characters += len(pages[-1])
            LIMITS.check(characters=n_characters)  # many pages may share a few bytes
    except Exception as error:  # pypdf raises many kinds for damaged documents
        problem = f"cannot be read ({str(error) or 'out of memory'}): save it again"
        raise ValueError(f"{name} is a PDF document that {problem}") from error
    problem = "with a password: save it without one, for example with qpdf --decrypt"
    if not locked and not "".join(pages).strip():
        problem = f"without text ({counted(len(pages), 'page')}, perhaps scanned): recognize the "
        problem += "text first, for example with ocrmypdf"
    elif not locked:
        return "".join(f"{paragraphs(page)}\f" for page in pages)
    raise ValueError(f"{name} is a PDF document {problem}")


def _with_headings_apart(page: Any) -> str:
    """Returns the text of a page, with a blank line around lines that are larger than most."""
    sizes = list[float]()
    result = ""
    start = 0
    was_large = False
    actual = _ActualText(page)
    text: str = page.extract_text(
        visitor_text=lambda text, cm, tm, _, size: sizes.extend(
            [abs(cm[3] * tm[3] * size)] * len(text)
        ),
        visitor_operand_before=actual.before,
        visitor_operand_after=actual.after,
    )
    usual = _font_size(text, sizes)
    for line in text.splitlines(keepends=True) if len(sizes) == len(text) else [text]:
        is_large = _font_size(line, sizes[start : start + len(line)]) > HEADING * usual
        if is_large != was_large:
            result += "\n"
        result += line
        start += len(line)
        was_large = is_large
    return result


class _ActualText:
    """Replaces text that a page shows by its ``ActualText`` (ISO 32000-1, 14.9.4).

    Its methods are called around each operator, whose operands they change.
    """

    def __init__(self, page: Any) -> None:
        self._resources = [page.get("/Resources")]  # of the page and of the forms in it
        # the text of each open marked content, which is taken out when it is shown
        self._texts: list[list[str] | None] = []

    def before(self, operator: bytes, operands: Any, *_: Any) -> None:
        from pypdf.generic import ArrayObject, TextStringObject

        text = self._texts[-1] if self._texts else None
        if operator == b"Do":
            form = self._entry("/XObject", operands)
            self._resources.append(form.get("/Resources", self._resources[-1]))
        elif operator in (b"BMC", b"BDC"):
            self._texts.append(self._text(operands[1:]) if text is None else text)
        elif operator == b"EMC" and self._texts:
            self._texts.pop()
        elif operator in (b"Tj", b"TJ", b"'", b'"') and operands and text is not None:
            shown = TextStringObject(text.pop() if text else "")
            operands[-1] = ArrayObject([shown]) if operator == b"TJ" else shown

    def after(self, operator: bytes, *_: Any) -> None:
        if operator == b"Do":
            self._resources.pop()

    def _text(self, operands: Any) -> list[str] | None:
        from pypdf.generic import create_string_object

        given = operands and isinstance(operands[0], dict)
        text = (operands[0] if given else self._entry("/Properties", operands)).get("/ActualText")
        text = text.get_object() if text is not None else None
        return [str(create_string_object(text))] if isinstance(text, str | bytes) else None

    def _entry(self, kind: str, names: Any) -> Any:
        """Returns what the first name means in the resources, {} if it means nothing."""
        with suppress(AttributeError, IndexError, KeyError, TypeError):
            found = self._resources[-1].get_object()[kind].get_object()[names[0]].get_object()
            return found if isinstance(found, dict) else {}
        return {}


def _font_size(text: str, sizes: Sequence[float]) -> float:
    """Returns the size of most characters of a text, 0 without any."""
    return mode([size for c, size in zip(text, sizes, strict=False) if not c.isspace()] or [0.0])


def paragraphs(page: str) -> str:
    r"""Returns the text of a page with a blank line behind each paragraph, without hyphenation.

    A paragraph ends with a sentence in a line that is not full, or before an item of a list.

    >>> paragraphs("A line that is full of\nwords ends.\nThe next para-\ngraph.")
    'A line that is full of\nwords ends.\n\nThe next paragraph.\n\n'
    """
    lines = [line.strip() for line in page.replace("\f", "\n").splitlines()]
    full = SHORT_LINE * max(map(len, lines), default=0)
    result = ""
    for line, following in pairwise([*lines, ""]):
        ends = line.endswith((".", "?", "!", ":")) and len(line) <= full
        if _ABBREVIATION.search(line) or following[:1].islower():
            ends = False
        result += line + ("\n\n" if ends or _ITEM.match(following) else "\n")
    return _HYPHEN.sub("", result)
