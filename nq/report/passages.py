"""The blocks of a page as readable text with marked answers, for the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nq.formats.words import spellings
from nq.records import Example, Span

MAX_CHARS = 6000
"""Characters of a block that are shown."""
AROUND_CHARS = 1500
"""Characters before the first mark of a block that is too long."""
AROUND_TOKENS = 40
"""Tokens around an answer that is in no block."""

Segment = str | list[str]
"""A piece of text; with marks, the text and the letters of its marks."""
Marks = Mapping[str, Sequence[Span]]
"""The spans of each mark, which is a letter."""


@dataclass(frozen=True, slots=True)
class Spelled:
    """The readable text of a span of a page.

    Args:
        text: lines for paragraphs, items and rows; ``|`` between cells.
        starts, ends: characters of each token of the span; -1 for those without text.
    """

    text: str
    starts: Sequence[int]
    ends: Sequence[int]


def spell(example: Example, span: Span) -> Spelled:
    """Returns the readable text of a span; as ``nq.formats.pages`` spells the page of a record."""
    tokens = example.tokens[span.start : span.end]
    is_html = example.is_html[span.start : span.end]
    parts: list[str] = []
    starts, ends = [-1] * len(tokens), [-1] * len(tokens)
    length, gap, has_bytes = 0, "", example.token_bytes is not None
    for i, (spelling, html) in enumerate(zip(spellings(tokens, is_html), is_html, strict=True)):
        if html:
            gap += spelling
            continue
        word = spelling.strip()
        if not word:
            continue
        if has_bytes and gap == " " and i and not is_html[i - 1]:
            gap = "" if example.adjacent(span.start + i - 1, span.start + i) else gap
        if length and gap:
            parts.append(between := _between(gap))
            length += len(between)
        parts.append(word)
        starts[i] = length
        ends[i] = length = length + len(word)
        gap = " " if spelling[-1] == " " else ""
    return Spelled("".join(parts), starts, ends)


def _between(gap: str) -> str:
    """Returns what stands between two words: a line end, the marks of cells, or a blank.

    >>> _between(" "), _between(" |  | "), _between(" | \\n\\n")
    (' ', ' | | ', '\\n')
    """
    if "\n" in gap:
        return "\n"
    return f" {'| ' * gap.count('|')}" if "|" in gap else " "


def span_text(example: Example, span: Span, max_chars: int) -> str:
    """Returns the readable text of a span in one line, cut to a number of characters."""
    end = min(span.end, span.start + max_chars // 2 + 8)
    text = spell(example, Span(span.start, end)).text.replace("\n", " ")
    return text[: max_chars - 1] + "…" if len(text) > max_chars or end < span.end else text


def marked(example: Example, block: Span, marks: Marks) -> list[Segment]:
    """Returns the text of a block in segments.

    Of a block that is too long the part around its first mark is shown.

    Args:
        example: question and page.
        block: a span of the page.
        marks: spans inside the block; others are left out.
    """
    spelled = spell(example, block)
    ranges = []
    for letter, spans in marks.items():
        for span in filter(block.contains, spans):
            inside = range(span.start - block.start, span.end - block.start)
            words = [i for i in inside if spelled.starts[i] >= 0]
            if words:
                ranges.append((spelled.starts[words[0]], spelled.ends[words[-1]], letter))
    low, high = 0, len(spelled.text)
    if high > MAX_CHARS:
        low = max(0, min(ranges)[0] - AROUND_CHARS if ranges else 0)
        high = min(high, low + MAX_CHARS)
    segments: list[Segment] = ["… "] if low else []
    cuts = {low, high, *(c for a, b, _ in ranges for c in (a, b) if low < c < high)}
    for start, end in pairwise(sorted(cuts)):
        letters = "".join(sorted({letter for a, b, letter in ranges if a <= start and end <= b}))
        text = spelled.text[start:end]
        segments.append([text, letters] if letters else text)
    return [*segments, *[" …"] * (high < len(spelled.text))]


class Blocks:
    """The blocks of a page, in which its answers are shown.

    Args:
        example: question and page.

    Attributes:
        spans: the top-level candidates in page order.
    """

    def __init__(self, example: Example) -> None:
        self.example = example
        self.spans = sorted({c.span for c in example.candidates if c.top_level})

    def number(self, span: Span | None) -> int | None:
        """Returns the number, from 1 on, of the first block around a span; ``None`` for none."""
        if span is None:
            return None
        return next((n for n, block in enumerate(self.spans, 1) if block.contains(span)), None)

    def passages(
        self, longs: Marks, shorts: Marks, more_chars: int, others: Iterable[Span] = ()
    ) -> list[dict[str, Any]]:
        """Returns the passages with answers, and those nearest to them, in page order.

        Args:
            longs: the long answers by mark; one that is a whole block marks the passage.
            shorts: the short answers by mark.
            more_chars: characters of further blocks.
            others: long answers whose blocks come first among the further ones.
        """
        answers = [span for marks in (longs, shorts) for spans in marks.values() for span in spans]
        first = {number - 1 for span in answers if (number := self.number(span))}
        near = {number - 1 for span in others if (number := self.number(span))} - first
        more, last = [], len(self.example.tokens)
        for index in sorted(
            set(range(len(self.spans))) - first,
            key=lambda i: (i not in near, min((abs(i - f) for f in first), default=i), i),
        ):
            block = self.spans[index]
            more_chars -= min(
                MAX_CHARS, sum(map(len, self.example.tokens[block.start : block.end]))
            )
            if more_chars < 0:
                break
            more.append(index)
        outside = {
            Span(
                max(0, span.start - AROUND_TOKENS),
                min(last, span.end + AROUND_TOKENS, span.start + MAX_CHARS + AROUND_TOKENS),
            )
            for span in answers
            if not self.number(span)
        }
        shown: list[tuple[Span, int | None, bool]] = [
            *((self.spans[i], i + 1, i in first) for i in (*first, *more)),
            *((span, None, True) for span in outside),
        ]
        return [
            {
                "n": number,
                "k": self.example.block_type(span) if number else "",
                "e": int(is_first),
                "l": "".join(letter for letter, spans in longs.items() if span in spans),
                "x": marked(
                    self.example,
                    span,
                    {k: [s for s in spans if s != span] for k, spans in longs.items()} | {**shorts},
                ),
            }
            for span, number, is_first in sorted(shown, key=lambda passage: passage[0])
        ]
