"""Pages and answers as people see them: their text, marks, HTML and JSON values."""

from __future__ import annotations

import html
import textwrap
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nq.records import Example, Span, YesNo, char_span, readable_text


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Where the blocks of a page come from that was selected from several documents.

    Args:
        starts: first token of each block in the page, ascending.
        sources: for each block its document, and its first token there.
        unread_blocks: blocks of the documents that are not in the page.
        skipped: for each document that cannot be read its name and the reason.
    """

    starts: Sequence[int] = ()
    sources: Sequence[tuple[Page, int]] = ()
    unread_blocks: int = 0
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """A page with its readable text; ``nq.read_page`` makes one.

    Args:
        example: tokens and candidates of the page; its question may be empty.
        spelling: the readable text of each token. That of a word ends in a blank where the
            page has one; that of a tag is a line end, a mark between cells, or empty.
        name: of its file, or one that the user gave; else empty.
        selection: where its blocks come from, if it was selected from several documents.
    """

    example: Example
    spelling: Sequence[str]
    name: str = ""
    selection: Selection | None = None

    def text(self, span: Span) -> str:
        """Returns the readable text of a span, as ``readable_text`` does."""
        return readable_text(self.spelling[span.start : span.end])

    def __repr__(self) -> str:
        words = len(self.example.is_html) - sum(self.example.is_html)
        return f"Page({words} words, {_shortened(readable_text(self.spelling))!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Page) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(tuple(self.spelling))

    def _value(self) -> tuple[Any, ...]:
        original = self.example.original
        chars = original and (original.plain, original.chars.tolist())
        tokens = list(self.example.tokens)
        candidates = list(self.example.candidates)
        return tokens, candidates, list(self.spelling), chars

    def located(
        self, block: Span, shorts: Sequence[Span]
    ) -> tuple[str, list[tuple[int, int] | None]]:
        """Returns the text of a block, and where the short answers inside it are in the text."""
        inside = [_shifted(s, -block.start) for s in shorts if block.contains(s)]
        return located(self.spelling[block.start : block.end], inside)

    def marked(self, block: Span, shorts: Sequence[Span]) -> Iterator[tuple[str, bool]]:
        """Yields the text of a block in parts, and whether each is a short answer."""
        text, places = self.located(block, shorts)
        end = 0
        for first, last in sorted(place for place in places if place):
            yield from ((text[end:first], False), (text[first:last], True))
            end = last
        yield text[end:], False

    def origin(self, long: Span | None, shorts: Sequence[Span]) -> Place:
        """Returns the document that contains an answer, and its spans in that document."""
        first = long or next(iter(shorts), None)
        if self.selection is None or first is None:
            return self, long, tuple(shorts)
        block = bisect_right(self.selection.starts, first.start) - 1
        page, start = self.selection.sources[block]
        shift = start - self.selection.starts[block]
        moved = tuple(_shifted(span, shift) for span in shorts)
        return page, long and _shifted(long, shift), moved

    def citation(self, span: Span) -> dict[str, int | None]:
        """Returns the numbers of the block and of the page of a span, from 1.

        ``page_number`` is ``None`` where no form feed divides the text.
        """
        original = self.example.original
        number = None
        if original and original.plain and "\f" in original.plain:
            start, _ = original.place(span) or (0, 0)
            number = 1 + original.plain.count("\f", 0, start)
        starts = (c.span.start for c in self.example.candidates if c.top_level)
        return {
            "block": sum(start <= span.start for start in starts),
            "page_number": number,
        }

    def with_question(self, question: str) -> Example:
        """Returns the page's example with ``question``, without annotations."""
        return replace(self.example, question=question, annotations=None, answers=None)


def _shifted(span: Span, shift: int) -> Span:
    return Span(span.start + shift, span.end + shift)


Place = tuple[Page, Span | None, tuple[Span, ...]]
"""A document, and the spans of a long answer and of short answers there."""


def located(
    spelling: Sequence[str], answers: Sequence[Span]
) -> tuple[str, list[tuple[int, int] | None]]:
    """Returns words as readable text, and the characters of each answer in it.

    ``answers`` are ranges of the words; an answer without text has no characters.

    >>> located(["\\n", "a ", "b  ", "c ", "| "], [Span(1, 3), Span(4, 5)])
    ('a b c', [(0, 3), None])
    """
    places = list[tuple[int, int] | None]()
    for answer in answers:
        words = [i for i in range(answer.start, answer.end) if spelling[i].strip(" |\n")]
        if words:
            # a letter keeps the blanks before the answer
            with_letter = [*spelling[: words[0]], "x"]
            start = len(readable_text(with_letter)) - 1
            places.append((start, len(readable_text(spelling[: words[-1] + 1]))))
        else:
            places.append(None)
    return readable_text(spelling), places


def _span(page: Page, span: Span) -> dict[str, Any]:
    return {
        "text": page.text(span),
        "start_token": span.start,
        "end_token": span.end,
        **char_span(span, page.example.original),
        **page.citation(span),
    }


def _place(answer: Answer, short: Span) -> dict[str, int]:
    """Returns where a short answer is in the text of the long one, -1 if it is not in it."""
    _, places = answer.page.located(answer.long_span, [short]) if answer.long_span else ("", [])
    start, end = next(filter(None, places), (-1, -1))
    return {"start_in_long": start, "end_in_long": end}


CANNOT_TELL = "The question asks for yes or no, which this model cannot tell."

_shortened = partial(textwrap.shorten, width=60, placeholder="…")


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """The answer to a question about a page, or one of its alternatives.

    Spans are document tokens. The probabilities are that the block and that the short answer, or
    yes or no, is right; where there is none, it is ``None``. ``alternatives`` are the most probable
    other blocks and their short answers, the most probable short answer first. ``page`` is the
    document of the answer, ``unread_blocks`` the number of blocks that a limit left out, and
    ``skipped`` has name and reason of each document that could not be read. ``asks_yes_no`` tells
    that the question is yes/no but the model cannot decide, so that the answer is the block alone.
    By a decision rule without probabilities there is a ``score`` in their place, above 0 for what
    is answered.
    """

    question: str
    page: Page
    long_span: Span | None = None
    short_spans: tuple[Span, ...] = ()
    yes_no: YesNo = YesNo.NONE
    long_probability: float | None = None
    short_probability: float | None = None
    alternatives: tuple[Answer, ...] = ()
    unread_blocks: int = 0
    skipped: tuple[str, ...] = ()
    asks_yes_no: bool = False
    score: float | None = None

    @property
    def document(self) -> str | None:
        """Name of the document with the answer; ``None`` if it has none."""
        return self.page.name or None

    @property
    def short(self) -> str | None:
        """Text of the short answer; ``None`` for yes, no, or no short answer."""
        texts = (self.page.text(span).replace("\n", " ") for span in self.short_spans)
        return "; ".join(texts) or None

    @property
    def long(self) -> str | None:
        """Text of the block with the answer; ``None`` for no long answer."""
        return self.page.text(self.long_span) if self.long_span else None

    @property
    def text(self) -> str | None:
        """The short answer in words: "yes", "no", or text of the page; ``None`` for none."""
        return self.short if self.yes_no is YesNo.NONE else self.yes_no.lower()

    @property
    def answered(self) -> bool:
        """Whether there is a long, a short or a yes/no answer."""
        return self.long_span is not None or self.text is not None

    def __bool__(self) -> bool:
        return self.answered

    def __repr__(self) -> str:
        probability = self.short_probability
        shown = "" if probability is None else f", probability={probability:.2g}"
        return f"Answer({self.text!r}{shown}, long={self.long and _shortened(self.long)!r})"

    def _repr_html_(self) -> str:
        """Returns the block with the short answers marked, as notebooks show it."""
        block = ""
        long = self.long_span
        for text, is_answer in self.page.marked(long, self.short_spans) if long else ():
            escaped = html.escape(text)
            block += f"<mark>{escaped}</mark>" if is_answer else escaped
        return f"<p><b>{html.escape(str(self))}</b></p><p>{block}</p>"

    def to_dict(self) -> dict[str, Any]:
        """Returns the answer as JSON values.

        Spans are half-open ranges of the page's tokens and, where the page is the user's own text,
        of the characters in it. Short answers have their characters in the text of the long answer
        too (``start_in_long``, ``end_in_long``), -1 where they are not in it.
        """
        return {
            "question": self.question,
            "answer": self.text,
            "document": self.document,
            "yes_no_answer": str(self.yes_no),
            "asks_yes_no": self.asks_yes_no,
            "short_answers": [
                {**_span(self.page, span), **_place(self, span)} for span in self.short_spans
            ],
            "short_probability": self.short_probability,
            "score": self.score,
            "long_answer": _span(self.page, self.long_span) if self.long_span else None,
            "long_probability": self.long_probability,
            "runners_up": [
                {
                    "answer": other.text,
                    "document": other.document,
                    "short_probability": other.short_probability,
                    "long_answer": _span(other.page, other.long_span) if other.long_span else None,
                    "long_probability": other.long_probability,
                }
                for other in self.alternatives
            ],
            "unread_blocks": self.unread_blocks,
            "skipped_documents": list(self.skipped),
        }

    def __str__(self) -> str:
        passage = f"{CANNOT_TELL} The passage: {self.long}" if self.asks_yes_no else self.long
        return self.text or passage or "no answer"
