"""The records that pass between the stages, as frozen dataclasses.

Coordinates carry their unit in the name: ``doc`` is an index into the document's
tokens, ``pos`` an index into one window's row of pieces. Spans are half-open.
"No answer" is ``None``; -1 is used only where a file format prescribes it.
"""

from __future__ import annotations

import enum
import html
import re
import textwrap
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.integer[Any]]
FloatArray = NDArray[np.floating[Any]]

ExampleId = int | str
ExampleKey = tuple[int, int]
"""File number and line of an example, which are unique in a run."""

BLOCK_TYPES = {
    "<P>": "Paragraph",
    "<Table>": "Table",
    "<Ul>": "List",
    "<Ol>": "List",
    "<Dl>": "List",
}


class AnswerType(enum.IntEnum):
    """The type of a window's target, in the order of the type logits (BERT-Joint)."""

    UNKNOWN = 0
    YES = 1
    NO = 2
    SHORT = 3
    LONG = 4

    @property
    def yes_no(self) -> YesNo:
        """The yes/no answer of this type.

        >>> str(AnswerType.YES.yes_no), str(AnswerType.SHORT.yes_no)
        ('YES', 'NONE')
        """
        return YesNo[self.name] if self in (AnswerType.YES, AnswerType.NO) else YesNo.NONE


UNLABELLED = -1
"""In place of an ``AnswerType``: the target of a window is unknown, because nobody annotated it."""


class YesNo(enum.StrEnum):
    """The yes/no answer of an annotation or a prediction, with the values of the file formats."""

    NONE = "NONE"
    YES = "YES"
    NO = "NO"


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A half-open range of document tokens: ``start`` is included, ``end`` is not."""

    start: int
    end: int

    def contains(self, other: Span) -> bool:
        """Returns whether ``other`` is wholly inside this span.

        >>> Span(2, 9).contains(Span(2, 4)), Span(2, 9).contains(Span(8, 10))
        (True, False)
        """
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate for the long answer: an HTML block (paragraph, table, list, row) of the page."""

    span: Span
    top_level: bool


@dataclass(frozen=True, slots=True)
class Annotation:
    """The gold answer of one annotator.

    ``candidate`` is the index of the long answer in the example's candidates,
    ``None`` where the annotator gave none or the file has no index.
    """

    long: Span | None
    candidate: int | None
    shorts: tuple[Span, ...]
    yes_no: YesNo


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of a record: index and path of the input file, and the line (from 1)."""

    file_index: int
    path: str
    line: int


@dataclass(frozen=True, slots=True, eq=False)
class Original:
    """The text that a user gave, and where the tokens of a page are in it.

    Args:
        chars: ``[n_tokens, 2]`` half-open range of characters of each token in the user's text; -1
            for a tag, -2 for a word whose place is not known.
        plain: the user's text where it is plain, ``None`` where it is HTML.
        spelling: the readable text of each token, as in ``Page``.
    """

    chars: IntArray
    plain: str | None
    spelling: Sequence[str]

    def place(self, span: Span) -> tuple[int, int] | None:
        """Returns the characters from the first to the last word of ``span``, as a range.

        It is ``None`` where the place of either is not known, and for a span without words.

        >>> chars = np.array([[-1, -1], [0, 2], [3, 8]])
        >>> original = Original(chars, "It rains", ["", "It ", "rains"])
        >>> original.place(Span(0, 2)), original.text(Span(0, 3))
        ((0, 2), 'It rains')
        """
        words = self.chars[span.start : span.end]
        words = words[words[:, 0] != -1]
        if not len(words) or min(words[0, 0], words[-1, 0]) < 0:
            return None
        return int(words[0, 0]), int(words[-1, 1])

    def text(self, span: Span) -> str:
        """Returns the text of ``span``: of plain text exactly as it is, of HTML in one line."""
        place = self.place(span)
        if self.plain is not None:
            return self.plain[slice(*place)] if place else ""
        return readable_text(self.spelling[span.start : span.end]).replace("\n", " ")


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A question and its page, independent of the input format.

    Args:
        example_id: the id in the file; numeric strings become ``int``.
        tokens: the document's tokens, HTML tags included.
        candidates: every candidate of the page, nested ones included, in file order.
        annotations: the gold answers; ``None`` where the file has none.
        token_bytes: ``[n_tokens, 2]`` start and end byte of each token in the original
            HTML or plain text; ``None`` for formats without bytes.
        is_wiki: whether the page is one of Wikipedia, whose notes and footers are never answers:
            that of a record is, a document only if it names MediaWiki as its generator.
        title: the page's title, empty where the file has none.
        original: the user's text, where the file has one that nq itself cut into tokens.
        answers: the gold answers as text, empty if there is none in the page; ``None`` where the
            file has no gold, or gold that is not text.
    """

    example_id: ExampleId
    question: str
    tokens: Sequence[str]
    is_html: Sequence[bool]
    candidates: Sequence[Candidate]
    annotations: tuple[Annotation, ...] | None = None
    token_bytes: IntArray | None = None
    is_wiki: bool = True
    title: str = ""
    original: Original | None = None
    answers: tuple[str, ...] | None = None

    def text(self, span: Span) -> str:
        """Returns the words of ``span`` without the tags, joined by blanks.

        Words whose bytes are adjacent in the page are joined without a blank, so that an
        answer in Thai or Japanese, or one with a comma, has the spacing of the page. Where the
        user's own text is known, it is that text.
        """
        if self.original is not None:
            return self.original.text(span)
        inside = [i for i in range(span.start, span.end) if not self.is_html[i]]
        return "".join(
            self.tokens[i] if n == 0 or self.adjacent(inside[n - 1], i) else " " + self.tokens[i]
            for n, i in enumerate(inside)
        )

    def short_answer(self, shorts: Sequence[Span], yes_no: YesNo) -> str:
        """Returns a short answer in words: yes, no, or text of the page; empty if it is none."""
        if yes_no is not YesNo.NONE:
            return yes_no.lower()
        return "; ".join(self.text(span) for span in shorts)

    def block_type(self, block: Span) -> str:
        """Returns Paragraph, Table, List or Other, by the first tag of ``block``."""
        return BLOCK_TYPES.get(self.tokens[block.start], "Other")

    def adjacent(self, token: int, following: int) -> bool:
        """Returns whether the bytes of ``following`` begin where those of ``token`` end."""
        spans = self.token_bytes
        return spans is not None and bool(0 <= spans[token, 1] == spans[following, 0])


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
        """Returns whether two pages have the same tokens, blocks and text."""
        return isinstance(other, Page) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(tuple(self.spelling))

    def _value(self) -> tuple[Any, ...]:
        original = self.example.original
        chars = original and (original.plain, original.chars.tolist())
        tokens, candidates = list(self.example.tokens), list(self.example.candidates)
        return tokens, candidates, list(self.spelling), chars

    def located(
        self, block: Span, shorts: Sequence[Span]
    ) -> tuple[str, list[tuple[int, int] | None]]:
        """Returns the text of a block, and where the short answers inside it are in the text."""
        inside = [
            Span(s.start - block.start, s.end - block.start) for s in shorts if block.contains(s)
        ]
        return located(self.spelling[block.start : block.end], inside)

    def origin(self, long: Span | None, shorts: Sequence[Span]) -> Place:
        """Returns the document of an answer, and its spans there."""
        first = long or next(iter(shorts), None)
        if self.selection is None or first is None:
            return self, long, tuple(shorts)
        block = bisect_right(self.selection.starts, first.start) - 1
        page, start = self.selection.sources[block]
        shift = start - self.selection.starts[block]
        moved = tuple(Span(span.start + shift, span.end + shift) for span in shorts)
        return page, long and Span(long.start + shift, long.end + shift), moved

    def citation(self, span: Span) -> dict[str, int | None]:
        """Returns the numbers of the block and of the page of a span, from 1.

        ``page_number`` is ``None`` where no form feed divides the text.
        """
        original, number = self.example.original, None
        if original and original.plain and "\f" in original.plain:
            start, _ = original.place(span) or (0, 0)
            number = 1 + original.plain.count("\f", 0, start)
        starts = (c.span.start for c in self.example.candidates if c.top_level)
        return {"block": sum(start <= span.start for start in starts), "page_number": number}

    def with_question(self, question: str) -> Example:
        """Returns the page's example with ``question``, without annotations."""
        return replace(self.example, question=question, annotations=None, answers=None)


Place = tuple[Page, Span | None, tuple[Span, ...]]
"""A document, and the spans of a long answer and of short answers there."""


def readable_text(spelling: Sequence[str]) -> str:
    """Returns words as text: one line per paragraph, item and row, ``|`` between cells."""
    lines = (" ".join(line.split()).strip(" |") for line in "".join(spelling).split("\n"))
    return "\n".join(line for line in lines if line)


PRIVATE_USE = range(0xF0000, 0xFFFFE)
"""Code points without a character of their own, more than a page's text of one block has."""


def located(
    spelling: Sequence[str], answers: Sequence[Span]
) -> tuple[str, list[tuple[int, int] | None]]:
    """Returns the readable text of words, and the characters of each answer in it.

    A character that the text does not have is put before the first and behind the last word of
    each answer, because ``readable_text`` moves all that follows. ``answers`` are ranges of the
    words; an answer without text has no characters.

    >>> located(["\\n", "a ", "b  ", "c ", "| "], [Span(1, 3), Span(4, 5)])
    ('a b c', [(0, 3), None])
    """
    whole, spelled = "".join(spelling), list(spelling)
    border = next(c for c in map(chr, PRIVATE_USE) if c not in whole)
    words = [[i for i in range(a.start, a.end) if spelling[i].strip(" |\n")] for a in answers]
    starts, ends = {w[0] for w in words if w}, {w[-1] for w in words if w}
    for i in starts | ends:
        word = spelling[i].rstrip()
        after = border * (i in ends) + spelling[i][len(word) :]
        spelled[i] = border * (i in starts) + word + after
    text = readable_text(spelled)
    places = (match.start() - n for n, match in enumerate(re.finditer(border, text)))
    tokens = sorted([*((i, 0) for i in starts), *((i, 1) for i in ends)])
    place = dict(zip(tokens, places, strict=True))
    return text.replace(border, ""), [
        (place[w[0], 0], place[w[-1], 1]) if w else None for w in words
    ]


def char_span(span: Span | None, original: Original | None) -> dict[str, int]:
    """Returns where a span is in the user's text, -1 if it is ``None`` or its place not known.

    Without the user's text the result is empty.
    """
    if original is None:
        return {}
    start, end = (span and original.place(span)) or (-1, -1)
    return {"start_char": start, "end_char": end}


def _span(page: Page, span: Span) -> dict[str, Any]:
    tokens = {"start_token": span.start, "end_token": span.end}
    chars = char_span(span, page.example.original)
    return {"text": page.text(span), **tokens, **chars, **page.citation(span)}


def _place(answer: Answer, short: Span) -> dict[str, int]:
    """Returns where a short answer is in the text of the long one, -1 if it is not in it."""
    start, end = -1, -1
    if answer.long_span:
        text, places = answer.page.located(answer.long_span, [short])
        if places and places[0] and text == answer.page.text(answer.long_span):
            start, end = places[0]
    return {"start_in_long": start, "end_in_long": end}


READ_PASSAGE = "yes or no: read the passage"
"""Stands for the short answer to a question that asks for yes or no, if it is not known which."""

_shortened = partial(textwrap.shorten, width=60, placeholder="…")


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """The answer to a question about a page, or one of its alternatives.

    Spans are document tokens. The probabilities, that the block and that the short answer is right,
    are ``None`` where nothing is answered. ``alternatives`` are the most probable other blocks and
    their short answers, the most probable short answer first. ``page`` is the document of the
    answer, ``unread_blocks`` the number of blocks that a limit left out, and ``skipped`` has name
    and reason of each document that could not be read. With ``asks_yes_no`` the question asks for
    yes or no, and the model, which cannot tell which is right, gives the block alone.
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

    @property
    def document(self) -> str | None:
        """Name of the document of the answer; ``None`` for no name, and where there is none."""
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

    def __repr__(self) -> str:
        probability = self.short_probability
        shown = "" if probability is None else f", probability={probability:.2g}"
        return f"Answer({self.text!r}{shown}, long={self.long and _shortened(self.long)!r})"

    def _repr_html_(self) -> str:
        """Returns the block with the short answers marked, as notebooks show it."""
        text, places = (
            self.page.located(self.long_span, self.short_spans) if self.long_span else ("", [])
        )
        result, end = f"<p><b>{html.escape(str(self))}</b></p><p>", 0
        for first, last in sorted(place for place in places if place):
            result += html.escape(text[end:first]) + f"<mark>{html.escape(text[first:last])}</mark>"
            end = last
        return f"{result}{html.escape(text[end:])}</p>"

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
        passage = READ_PASSAGE if self.asks_yes_no else self.long
        return self.text or passage or "no answer"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be used, the reason, and an excerpt of the record."""

    source: Source
    reason: str
    record: str


@dataclass(frozen=True, slots=True)
class Context:
    """One block of the page as model input: two marker words, then the block's words.

    ``candidate`` is the index in the full list of candidates, -1 for the null context, ``kind`` the
    type marker, such as ``[Paragraph=3]`` or ``[NoLongAnswer]``.
    """

    candidate: int
    kind: str
    words: Sequence[str]
    doc: Sequence[int]

    @property
    def markers(self) -> tuple[str, str]:
        """The two marker words that precede the block's words."""
        return f"[ContextId={self.candidate}]", self.kind


@dataclass(frozen=True, slots=True)
class Target:
    """The training target of a page: an answer type and a range of words.

    ``first`` and ``last`` (inclusive) index the page's word sequence, markers included.
    """

    kind: AnswerType
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """All windows of one example: ``W`` rows of ``L`` pieces.

    Args:
        input_ids: ``[W, L]`` pieces: [CLS] query [SEP] span [SEP] and zero padding.
        input_mask: ``[W, L]`` 1 for a piece, 0 for padding.
        segment_ids: ``[W, L]`` 0 for [CLS] query [SEP], 1 for span [SEP], 0 for padding.
        token_map: ``[W, L]`` document token of each position, -1 for query, markers, padding.
        windows: ``[W]`` number of each window within its example; training keeps a subset.
        n_windows: total number of windows of the example.
        start_positions: ``[W]`` row position of the target's first piece (training only).
        end_positions: ``[W]`` row position of its last piece, inclusive (training only).
        answer_types: ``[W]`` the target's ``AnswerType``, or ``UNLABELLED`` (training only).
    """

    example_id: ExampleId
    input_ids: IntArray
    input_mask: IntArray
    segment_ids: IntArray
    token_map: IntArray
    windows: IntArray
    n_windows: int
    start_positions: IntArray | None = None
    end_positions: IntArray | None = None
    answer_types: IntArray | None = None

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True, slots=True, eq=False)
class WindowScores:
    """The scores of the ``W`` windows of one example, reduced on the device to the top k.

    Args:
        start_doc: ``[W, k]`` document token of the k best start positions, -1 for none.
        start_pos: ``[W, k]`` their row positions.
        start_logit: ``[W, k]`` their logits, best first.
        end_doc, end_pos, end_logit: the same for the end (inclusive).
        cls_logit: ``[W, 2]`` start and end logit of [CLS].
        type_logits: ``[W, 5]`` in the order of ``AnswerType``.
    """

    start_doc: IntArray
    start_pos: IntArray
    start_logit: FloatArray
    end_doc: IntArray
    end_pos: IntArray
    end_logit: FloatArray
    cls_logit: FloatArray
    type_logits: FloatArray

    def __len__(self) -> int:
        return len(self.start_pos)


@dataclass(frozen=True, slots=True, eq=False)
class CascadeScores:
    """The scores of one example by two models: the first ranks the blocks, the second reads some.

    ``read`` has the ascending candidate indices of the blocks that the second read as a whole.
    """

    first: WindowScores
    second: WindowScores
    read: IntArray

    def __len__(self) -> int:
        return len(self.first) + len(self.second)


Scores = WindowScores | CascadeScores
"""The scores of one example."""

SCORE_COLUMNS = tuple(WindowScores.__slots__)
"""Names of the score columns, in the order in which engines return them."""
READ = "read"
"""Optional column: whether the model computed the window, or pruning left it out."""
RESCORED = "rescored"
"""Optional column: whether the window belongs to a close decision computed again in float32."""
SECOND_WINDOW = "second_window"
"""Column of a cascade: the number of a window of the second model, -1 for one of the first."""
READ_BLOCKS = "read_blocks"
"""Column of a cascade: half-open range of the candidate indices of those blocks in a window of the
second model that it read as a whole; -1 for none, and for windows of the first model."""

Columns = dict[str, np.ndarray[Any, Any]]
"""Named arrays with one row per window."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction for one example; every example has exactly one, answered or not."""

    example_id: ExampleId
    long: Span | None = None
    long_score: float = 0.0
    shorts: tuple[Span, ...] = ()
    short_score: float = 0.0
    yes_no: YesNo = YesNo.NONE

    @property
    def answered(self) -> bool:
        """Whether there is a long, a short or a yes/no answer."""
        return self.long is not None or bool(self.shorts) or self.yes_no is not YesNo.NONE


@dataclass(frozen=True, slots=True)
class Alternative:
    """One entry of the n-best list: a block of the page and its best short answer.

    With ``asks_yes_no`` that is yes or no, and the model cannot tell which.
    """

    long: Span
    shorts: tuple[Span, ...]
    yes_no: YesNo
    long_probability: float
    short_probability: float
    asks_yes_no: bool = False
