"""An answer as text for a terminal, and as JSON."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

from nq.formats.outputs import char_span
from nq.records import Answer, Page, Span
from nq.report.passages import located
from nq.text import truncate, visible

MARKS = ("»", "«")
MAX_WIDTH, MAX_LINES = 100, 16
INDENT = "  "


def render(answer: Answer, marks: Sequence[str] = MARKS) -> str:
    """Returns the answer, the block that contains it, and the alternatives, as text.

    Of a long block only the lines around the answer are shown. ``marks`` are put before and after
    the short answer in its block.
    """
    probable = answer.long_probability is not None
    parts = ["no answer"]
    if answer.answered:
        with_probability = probable and answer.text
        probability = f" ({_percent(answer.short_probability)})" if with_probability else ""
        parts = [visible(answer.text or "no short answer") + probability]
    if answer.long_span:
        probability = f" ({_percent(answer.long_probability)})" if probable else ""
        parts.append(f"found in{probability}:\n{_block(answer, answer.long_span, marks)}")
    if answer.alternatives:
        rows = "\n".join(map(_row, answer.alternatives))
        parts.append(f"runners-up:\n{rows}" if probable else f"best guesses:\n{rows}")
    return "\n\n".join(parts)


def to_dict(answer: Answer) -> dict[str, Any]:
    """Returns the answer as JSON values.

    Spans are half-open ranges of the page's tokens and, where the page is the user's own text, of
    the characters in it. Short answers have their characters in the text of the long answer too
    (``start_in_long``, ``end_in_long``), -1 where they are not in it.
    """
    return {
        "question": answer.question,
        "answer": answer.text,
        "yes_no_answer": str(answer.yes_no),
        "short_answers": [
            {**_span(answer.page, span), **_place(answer, span)} for span in answer.short_spans
        ],
        "short_probability": answer.short_probability,
        "long_answer": _span(answer.page, answer.long_span) if answer.long_span else None,
        "long_probability": answer.long_probability,
        "runners_up": [
            {
                "answer": other.text,
                "short_probability": other.short_probability,
                "long_answer": _span(answer.page, other.long_span) if other.long_span else None,
                "long_probability": other.long_probability,
            }
            for other in answer.alternatives
        ],
    }


def _percent(probability: float | None) -> str:
    """Returns a probability in percent that is never 0 or 100.

    >>> _percent(0.834), _percent(0.001), _percent(0.9999)
    ('83%', '<1%', '>99%')
    """
    if probability is None:
        return "?"
    if probability < 0.01:
        return "<1%"
    return ">99%" if probability > 0.99 else f"{probability:.0%}"


def _span(page: Page, span: Span) -> dict[str, Any]:
    tokens = {"start_token": span.start, "end_token": span.end}
    return {"text": page.text(span), **tokens, **char_span(span, page.example.original)}


def _located(
    page: Page, block: Span, shorts: Sequence[Span]
) -> tuple[str, list[tuple[int, int] | None]]:
    """Returns the text of a block, and where the short answers inside it are in the text."""
    inside = [Span(s.start - block.start, s.end - block.start) for s in shorts if block.contains(s)]
    return located(page.spelling[block.start : block.end], inside)


def _place(answer: Answer, short: Span) -> dict[str, int]:
    """Returns where a short answer is in the text of the long one, -1 if it is not in it."""
    start, end = -1, -1
    if answer.long_span:
        text, places = _located(answer.page, answer.long_span, [short])
        if places and places[0] and text == answer.page.text(answer.long_span):
            start, end = places[0]
    return {"start_in_long": start, "end_in_long": end}


def _row(other: Answer) -> str:
    start = f"{_percent(other.short_probability):>6}  "
    start += f"{truncate(visible(other.text or '(no short answer)'), 40)} · "
    block = other.page.text(other.long_span).replace("\n", " ") if other.long_span else ""
    return start + truncate(visible(block), max(_width() - len(start), 20))


def _block(answer: Answer, block: Span, marks: Sequence[str]) -> str:
    """Returns a block with marks in lines of the terminal; of many those around the answer."""
    text, places = _located(answer.page, block, answer.short_spans)
    pieces, end = "", 0
    for place in sorted(place for place in places if place):
        answer_text = visible(text[place[0] : place[1]], lines=True)
        pieces += visible(text[end : place[0]], lines=True) + marks[0] + answer_text + marks[1]
        end = place[1]
    pieces += visible(text[end:], lines=True)
    width = _width() - len(INDENT)
    wrapped = [row for part in pieces.split("\n") for row in textwrap.wrap(part, width)]
    marked = next((i for i, row in enumerate(wrapped) if marks[0] in row), 0)
    first = max(0, min(marked - MAX_LINES // 2, len(wrapped) - MAX_LINES))
    last = first + MAX_LINES
    lines = [*["…"] * (first > 0), *wrapped[first:last], *["…"] * (last < len(wrapped))]
    return textwrap.indent("\n".join(lines), INDENT)


def _width() -> int:
    return min(shutil.get_terminal_size().columns, MAX_WIDTH)
