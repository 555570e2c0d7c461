"""A reply as a person reads it, and as JSON."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nq.records import Alternative, Page, Prediction, Span, YesNo
from nq.report.page_text import MARKS, cut, line, text

MAX_WIDTH, MAX_LINES = 100, 16
INDENT = "  "


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered, and the answers that were weighed, best first, the given one too."""

    prediction: Prediction
    alternatives: tuple[Alternative, ...]

    @property
    def given(self) -> Alternative | None:
        """The weighed answer that the prediction gives, wholly or in part."""
        p = self.prediction
        for other in self.alternatives:
            if p.long == other.long or (p.shorts and p.shorts == other.shorts):
                return other
        first_is_given = p.yes_no is not YesNo.NONE and self.alternatives
        return self.alternatives[0] if first_is_given else None

    def runners_up(self, limit: int) -> tuple[Alternative, ...]:
        """The best answers that were not given."""
        return tuple(a for a in self.alternatives if a is not self.given)[:limit]


def show(page: Page, reply: Reply, top: int, marks: Sequence[str] = MARKS) -> str:
    """The answer, the block where it was found, and what else was weighed.

    Of a long block only the lines around the answer are shown; ``describe`` has all of it.

    Args:
        page: what was asked.
        reply: what was answered.
        top: how many runners-up to show.
        marks: what stands before and behind a short answer in its block.
    """
    prediction, given = reply.prediction, reply.given
    parts = []
    short = short_answer(page, prediction)
    if not prediction.answered:
        parts.append("no answer")
    else:
        sure = f" ({percent(given.short_probability)})" if given and short else ""
        parts.append((short or "no short answer") + sure)
    if prediction.long:
        sure = f" ({percent(given.long_probability)})" if given else ""
        block = text(page, prediction.long, prediction.shorts, marks)
        parts.append(f"found in{sure}:\n{_wrapped(block, marks[0])}")
    others = reply.runners_up(top)
    if others:
        rows = "\n".join(_row(page, other) for other in others)
        parts.append(f"runners-up:\n{rows}" if given else f"best guesses:\n{rows}")
    return "\n\n".join(parts)


def describe(page: Page, question: str, reply: Reply, top: int) -> dict[str, Any]:
    """The same as plain values; spans are half-open ranges of the page's tokens."""
    prediction, given = reply.prediction, reply.given
    return {
        "question": question,
        "answer": short_answer(page, prediction),
        "yes_no_answer": str(prediction.yes_no),
        "short_answers": [_place(page, span) for span in prediction.shorts],
        "short_probability": given.short_probability if given else None,
        "long_answer": _place(page, prediction.long) if prediction.long else None,
        "long_probability": given.long_probability if given else None,
        "runners_up": [
            {
                "answer": short_answer(page, other),
                "short_probability": other.short_probability,
                "long_answer": _place(page, other.long),
                "long_probability": other.long_probability,
            }
            for other in reply.runners_up(top)
        ],
    }


def short_answer(page: Page, found: Prediction | Alternative) -> str | None:
    """The short answer in words: of the page, or yes or no."""
    if found.yes_no is not YesNo.NONE:
        return found.yes_no.lower()
    return "; ".join(line(page, span) for span in found.shorts) or None


def percent(probability: float) -> str:
    """A probability that never claims to be certain.

    >>> percent(0.834), percent(0.001), percent(0.9999)
    ('83%', '<1%', '>99%')
    """
    if probability < 0.01:
        return "<1%"
    return ">99%" if probability > 0.99 else f"{probability:.0%}"


def _place(page: Page, span: Span) -> dict[str, Any]:
    return {"text": text(page, span), "start_token": span.start, "end_token": span.end}


def _row(page: Page, other: Alternative) -> str:
    answer = short_answer(page, other) or "(no short answer)"
    start = f"{percent(other.short_probability):>6}  {cut(answer, 40)} · "
    return start + cut(line(page, other.long), max(_width() - len(start), 20))


def _wrapped(block: str, mark: str) -> str:
    """The block in lines of the terminal's width; of many lines those around ``mark``."""
    wrapped = [
        row for part in block.split("\n") for row in textwrap.wrap(part, _width() - len(INDENT))
    ]
    at = next((i for i, row in enumerate(wrapped) if mark in row), 0)
    first = max(0, min(at - MAX_LINES // 2, len(wrapped) - MAX_LINES))
    last = first + MAX_LINES
    shown = [*["…"] * (first > 0), *wrapped[first:last], *["…"] * (last < len(wrapped))]
    return textwrap.indent("\n".join(shown), INDENT)


def _width() -> int:
    return min(shutil.get_terminal_size().columns, MAX_WIDTH)
