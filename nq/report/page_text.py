"""The readable text of a span of a page, with answers marked in it."""

from __future__ import annotations

from collections.abc import Sequence

from nq.records import Page, Span, readable_text

MARKS = ("»", "«")
PRIVATE_USE = range(0xF0000, 0xFFFFE)
"""Code points without a character of their own, more than a page's text of one block has."""


def span_text(page: Page, span: Span, shorts: Sequence[Span], marks: Sequence[str] = MARKS) -> str:
    """Returns the readable text of a span with marks around answers.

    Args:
        page: the page.
        span: a range of its tokens.
        shorts: spans to mark in it.
        marks: the text before and after each of them.
    """
    spelled = list(page.spelling[span.start : span.end])
    before, after = marks
    for short in shorts:
        if span.contains(short):
            first, last = short.start - span.start, short.end - 1 - span.start
            word = spelled[last].rstrip()
            spelled[last] = word + after + spelled[last][len(word) :]
            spelled[first] = before + spelled[first]
    return readable_text(spelled)


def place_in_text(page: Page, span: Span, short: Span) -> tuple[int, int] | None:
    """Returns the characters of an answer in ``page.text(span)``, as a half-open range.

    It is ``None`` where the answer is not inside the span, or has no text there.
    """
    text = page.text(span)
    unused = (mark for mark in map(chr, PRIVATE_USE) if mark not in text)
    marks = next(unused), next(unused)
    marked = span_text(page, span, [short], marks)
    start, end = (marked.find(mark) for mark in marks)
    if start < 0 or marked.replace(marks[0], "").replace(marks[1], "") != text:
        return None
    return start, end - 1
