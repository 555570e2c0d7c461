"""An answer as text for a terminal."""

import shutil
import textwrap
from collections.abc import Sequence

from nq.answers import READ_PASSAGE, Answer
from nq.records import Span
from nq.text import truncate, visible

MARKS = ("»", "«")
MAX_WIDTH, MAX_LINES = 100, 16
INDENT = "  "


def render(answer: Answer, marks: Sequence[str] = MARKS, cite: bool = False) -> str:
    """Returns the answer, the block that contains it, and the alternatives, as text.

    ``marks`` are put around the short answer in its block. With ``cite`` the documents are named.
    """
    probable = answer.answered and answer.long_probability is not None
    parts = ["no answer"]
    if answer.answered:
        with_probability = probable and answer.text
        probability = f" ({_percent(answer.short_probability)})" if with_probability else ""
        other = READ_PASSAGE if answer.asks_yes_no else "no short answer"
        score = "" if answer.score is None else f" (score {answer.score:.1f})"
        parts = [visible(answer.text or other) + probability + score]
    if answer.long_span:
        probability = f" ({_percent(answer.long_probability)})" if probable else ""
        where = f"found in{_source(answer, cite)}{probability}:"
        parts.append(f"{where}\n{_block(answer, answer.long_span, marks)}")
    if answer.alternatives:
        rows = "\n".join(_row(other, cite) for other in answer.alternatives)
        parts.append(f"runners-up:\n{rows}" if probable else f"best guesses:\n{rows}")
    return "\n\n".join(parts)


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


def _source(answer: Answer, cite: bool) -> str:
    """Returns document and page of an answer, as far as they tell it from others."""
    number = answer.long_span and answer.page.citation(answer.long_span)["page_number"]
    parts = [visible(answer.page.name)] * cite + [f"page {number}"] * (number is not None)
    return " " + ", ".join(parts) if parts else ""


def _row(other: Answer, cite: bool) -> str:
    start = f"{_percent(other.short_probability):>6}  "
    source = _source(other, cite).strip()
    start += f"{truncate(visible(other.text or '(no short answer)'), 40)} · "
    start += source and f"{truncate(source, 40)} · "
    block = other.page.text(other.long_span).replace("\n", " ") if other.long_span else ""
    return start + truncate(visible(block), max(_width() - len(start), 20))


def _block(answer: Answer, block: Span, marks: Sequence[str]) -> str:
    """Returns a block with marks in lines of the terminal; of many those around the answer."""
    text, places = answer.page.located(block, answer.short_spans)
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
