"""The readable text of spans of a page with the places of answers, and the passages of a page."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from nq.answers import located
from nq.formats.documents import one_line, record_spelling
from nq.records import Example, Span

MAX_CHARS, AROUND_CHARS = 6000, 1500
"""Characters of a block that are shown, and before its first mark if it is too long."""
AROUND_TOKENS = 40  # around an answer that is in no block

Segment = str | list[str]
"""A piece of text; with marks, the text and the letters of its marks."""
Marks = Mapping[str, Sequence[Span]]  # by mark, a letter


def span_text(example: Example, span: Span, max_chars: int) -> str:
    """Returns the readable text of a span in one line, cut to a number of characters."""
    end = min(span.end, span.start + max_chars // 2 + 8)
    text = one_line(example, Span(span.start, end))
    return text[: max_chars - 1] + "…" if len(text) > max_chars or end < span.end else text


def marked(example: Example, block: Span, marks: Marks) -> list[Segment]:
    """Returns the text of a block in segments, marked by the spans inside it.

    Of a block that is too long the part around its first mark is shown.
    """
    inside = [(k, span) for k, spans in marks.items() for span in filter(block.contains, spans)]
    answers = [Span(s.start - block.start, s.end - block.start) for _, s in inside]
    text, places = located(record_spelling(example, block), answers)
    ranges = [(*place, k) for place, (k, _) in zip(places, inside, strict=True) if place]
    low, high = 0, len(text)
    if high > MAX_CHARS:
        low = max(0, min(ranges)[0] - AROUND_CHARS if ranges else 0)
        high = min(high, low + MAX_CHARS)
    segments: list[Segment] = ["… "] if low else []
    cuts = {low, high, *(c for a, b, _ in ranges for c in (a, b) if low < c < high)}
    for start, end in pairwise(sorted(cuts)):
        letters = "".join(sorted({k for a, b, k in ranges if a <= start and end <= b}))
        segments.append([text[start:end], letters] if letters else text[start:end])
    return [*segments, *[" …"] * (high < len(text))]


class ShownBlocks:
    """The top-level candidates of a page in page order, by which its answers are displayed."""

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

        A long answer that is a whole block marks the passage. Of the blocks without answers, which
        have at most ``more_chars`` characters, those of ``others`` come first.
        """
        tokens = self.example.tokens
        answers = [span for marks in (longs, shorts) for spans in marks.values() for span in spans]
        first = {number for span in answers if (number := self.number(span))}
        near = {number for span in others if (number := self.number(span))}

        def distance(number: int) -> tuple[bool, int, int]:
            blocks = min((abs(number - other) for other in first), default=number)
            return number not in near, blocks, number

        shown: list[tuple[Span, int | None]] = [(self.spans[n - 1], n) for n in first]
        for number in sorted({*range(1, len(self.spans) + 1)} - first, key=distance):
            block = self.spans[number - 1]
            more_chars -= min(MAX_CHARS, sum(map(len, tokens[block.start : block.end])))
            if more_chars < 0:
                break
            shown.append((block, number))
        for span in {span for span in answers if not self.number(span)}:
            end = min(len(tokens), span.end + AROUND_TOKENS, span.start + MAX_CHARS + AROUND_TOKENS)
            shown.append((Span(max(0, span.start - AROUND_TOKENS), end), None))
        return [
            {
                "n": number,
                "k": self.example.block_type(span) if number else "",
                "e": int(number is None or number in first),
                "l": "".join(letter for letter, spans in longs.items() if span in spans),
                "x": marked(
                    self.example,
                    span,
                    {k: [s for s in spans if s != span] for k, spans in longs.items()} | {**shorts},
                ),
            }
            for span, number in sorted(dict.fromkeys(shown), key=lambda passage: passage[0])
        ]
