"""A span of a page as a person reads it, with answers marked in it."""

from __future__ import annotations

from collections.abc import Sequence

from nq.records import Page, Span

MARKS = ("»", "«")


def text(page: Page, span: Span, shorts: Sequence[Span] = (), marks: Sequence[str] = MARKS) -> str:
    """The text of ``span``: a line for each paragraph, item and row, ``|`` between cells.

    Args:
        page: what is shown.
        span: which part of it.
        shorts: spans in it, each set between ``marks``.
        marks: what stands before and behind.
    """
    spelled = list(page.spelling[span.start : span.end])
    before, behind = marks
    for short in shorts:
        if span.contains(short):
            first, last = short.start - span.start, short.end - 1 - span.start
            word = spelled[last].rstrip()
            spelled[last] = word + behind + spelled[last][len(word) :]
            spelled[first] = before + spelled[first]
    lines = (" ".join(line.split()).strip(" |") for line in "".join(spelled).split("\n"))
    return "\n".join(line for line in lines if line)


def line(page: Page, span: Span) -> str:
    """The text of ``span`` in one line."""
    return text(page, span).replace("\n", " ")


def cut(text: str, width: int) -> str:
    """At most ``width`` characters of a text.

    >>> cut("Obama", 5), cut("Obama", 4)
    ('Obama', 'Oba…')
    """
    return text if len(text) <= width else text[: width - 1] + "…"
