"""An answer as text for a terminal, and as JSON."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

from nq.formats.predictions import char_span
from nq.records import Answer, Page, Span
from nq.report.page_text import MARKS, place_in_text, span_text
from nq.text import truncate, visible

MAX_WIDTH, MAX_LINES = 100, 16
INDENT = "  "


def render(answer: Answer, marks: Sequence[str] = MARKS) -> str:
    """Returns the answer, the block that contains it, and the alternatives, as text.

    Of a long block only the lines around the answer are shown.

    Args:
        answer: the answer.
        marks: the text before and after the short answer in its block.
    """
    known = answer.long_probability is not None
    parts = ["no answer"]
    if answer.answered:
        probability = f" ({_percent(answer.short_probability)})" if known and answer.text else ""
        parts = [visible(answer.text or "no short answer") + probability]
    if answer.long_span:
        probability = f" ({_percent(answer.long_probability)})" if known else ""
        block = span_text(answer.page, answer.long_span, answer.short_spans, marks)
        parts.append(f"found in{probability}:\n{_wrapped(_visible(block, marks), marks[0])}")
    if answer.alternatives:
        rows = "\n".join(map(_row, answer.alternatives))
        parts.append(f"runners-up:\n{rows}" if known else f"best guesses:\n{rows}")
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


def _place(answer: Answer, short: Span) -> dict[str, int]:
    """Returns where a short answer is in the text of the long one, -1 if it is not in it."""
    place = answer.long_span and place_in_text(answer.page, answer.long_span, short)
    start, end = place or (-1, -1)
    return {"start_in_long": start, "end_in_long": end}


def _row(other: Answer) -> str:
    start = f"{_percent(other.short_probability):>6}  "
    start += f"{truncate(visible(other.text or '(no short answer)'), 40)} · "
    block = other.page.text(other.long_span).replace("\n", " ") if other.long_span else ""
    return start + truncate(visible(block), max(_width() - len(start), 20))


def _visible(block: str, marks: Sequence[str]) -> str:
    """Returns the text of a block for a terminal; the marks around answers stay as they are."""
    before, after = marks
    return before.join(
        after.join(visible(text, lines=True) for text in part.split(after))
        for part in block.split(before)
    )


def _wrapped(block: str, mark: str) -> str:
    """Returns the block in lines of the terminal's width; of many lines those around ``mark``."""
    wrapped = [
        row for part in block.split("\n") for row in textwrap.wrap(part, _width() - len(INDENT))
    ]
    marked = next((i for i, row in enumerate(wrapped) if mark in row), 0)
    first = max(0, min(marked - MAX_LINES // 2, len(wrapped) - MAX_LINES))
    last = first + MAX_LINES
    lines = [*["…"] * (first > 0), *wrapped[first:last], *["…"] * (last < len(wrapped))]
    return textwrap.indent("\n".join(lines), INDENT)


def _width() -> int:
    return min(shutil.get_terminal_size().columns, MAX_WIDTH)
