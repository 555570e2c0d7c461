"""Every noun that passes between the stages.

Positions carry their unit in the name: ``doc`` is an index into the document's
tokens, ``pos`` an index into one window's row of pieces. Spans are half-open.
"No answer" is ``None``; -1 lives only where a file format says so.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.integer[Any]]
FloatArray = NDArray[np.floating[Any]]

ExampleId = int | str

BLOCK_TYPES = {
    "<P>": "Paragraph",
    "<Table>": "Table",
    "<Ul>": "List",
    "<Ol>": "List",
    "<Dl>": "List",
}


class AnswerType(enum.IntEnum):
    """What a window's target is; the order is that of the type logits (BERT-Joint)."""

    UNKNOWN = 0
    YES = 1
    NO = 2
    SHORT = 3
    LONG = 4


class YesNo(enum.StrEnum):
    """The yes/no answer of an annotation or a prediction, spelled as the files spell it."""

    NONE = "NONE"
    YES = "YES"
    NO = "NO"


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Half-open range of document tokens: ``start`` is in it, ``end`` is not."""

    start: int
    end: int

    def contains(self, other: Span) -> bool:
        """Whether ``other`` lies wholly inside this span.

        >>> Span(2, 9).contains(Span(2, 4)), Span(2, 9).contains(Span(8, 10))
        (True, False)
        """
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible long answer: an HTML block (paragraph, table, list, row …) of the page."""

    span: Span
    top_level: bool


@dataclass(frozen=True, slots=True)
class Annotation:
    """What one annotator answered.

    ``candidate`` is the index of the long answer in the example's candidates,
    ``None`` where the annotator gave none or the file does not say.
    """

    long: Span | None
    candidate: int | None
    shorts: tuple[Span, ...]
    yes_no: YesNo


@dataclass(frozen=True, slots=True)
class Source:
    """Where a record was read: the how-manieth input file, its path, the line (from 1)."""

    file_index: int
    path: str
    line: int


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A question and its page, in whatever dialect it was written.

    Args:
        example_id: as in the file; numeric strings become ``int``.
        question: the question's text.
        tokens: the document's tokens, HTML tags among them.
        is_html: one flag a token, true for a tag.
        candidates: every candidate of the page, nested ones too, in file order.
        annotations: the gold; ``None`` where the file carries none.
        token_bytes: ``[n_tokens, 2]`` start and end byte of each token in the page as
            it was written, HTML or plain text; ``None`` in dialects without bytes.
        title: the page's title, empty where the file has none.
    """

    example_id: ExampleId
    question: str
    tokens: Sequence[str]
    is_html: Sequence[bool]
    candidates: Sequence[Candidate]
    annotations: tuple[Annotation, ...] | None = None
    token_bytes: IntArray | None = None
    title: str = ""

    def text(self, span: Span) -> str:
        """The words of ``span`` without the tags, with blanks between them.

        Words whose bytes touch in the page have no blank between them: so an answer in Thai
        or Japanese, and one with a comma, reads as the page does.
        """
        inside = [i for i in range(span.start, span.end) if not self.is_html[i]]
        return "".join(
            self.tokens[i] if n == 0 or self.touch(inside[n - 1], i) else " " + self.tokens[i]
            for n, i in enumerate(inside)
        )

    def block_type(self, block: Span) -> str:
        """Paragraph, Table, List or Other, by the tag that ``block`` begins with."""
        return BLOCK_TYPES.get(self.tokens[block.start], "Other")

    def touch(self, token: int, following: int) -> bool:
        """Whether the bytes of ``following`` begin where those of ``token`` end."""
        spans = self.token_bytes
        return spans is not None and bool(0 <= spans[token, 1] == spans[following, 0])


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """A page that can be shown: ``spelling`` has for each token what a person reads there.

    A word's spelling ends in a blank where the page has one; that of a tag is a line end,
    a mark between cells, or nothing.
    """

    example: Example
    spelling: Sequence[str]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be used, and why."""

    source: Source
    reason: str
    record: str


@dataclass(frozen=True, slots=True)
class Context:
    """One block of the page as the model reads it: two markers, then its words.

    Args:
        candidate: index in the FULL list of candidates, -1 for the null context.
        kind: the type marker, such as ``[Paragraph=3]`` or ``[NoLongAnswer]``.
        words: the block's words.
        doc: the document token of each word.
    """

    candidate: int
    kind: str
    words: Sequence[str]
    doc: Sequence[int]

    @property
    def markers(self) -> tuple[str, str]:
        """The two marker words in front of the block."""
        return f"[ContextId={self.candidate}]", self.kind


@dataclass(frozen=True, slots=True)
class Target:
    """What training wants found in a page: a type and the words from ``first`` to ``last``.

    ``first`` and ``last`` (inclusive) index the page's word sequence (markers included).
    """

    kind: AnswerType
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """All windows of one example, ``W`` rows of ``L`` pieces.

    Args:
        example_id: whose windows these are.
        input_ids: ``[W, L]`` pieces: [CLS] query [SEP] span [SEP] and zero padding.
        input_mask: ``[W, L]`` 1 for a piece, 0 for padding.
        segment_ids: ``[W, L]`` 0 for [CLS] query [SEP], 1 for span [SEP], 0 for padding.
        token_map: ``[W, L]`` document token of each position, -1 for query, markers, padding.
        windows: ``[W]`` number of each window within its example; training keeps only some.
        n_windows: how many windows the example has in all.
        start_positions: ``[W]`` row position of the target's first piece (training only).
        end_positions: ``[W]`` row position of its last piece, inclusive (training only).
        answer_types: ``[W]`` the target's ``AnswerType`` (training only).
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
    """What leaves the device for the ``W`` windows of one example.

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


SCORE_COLUMNS = tuple(WindowScores.__slots__)
READ = "read"
"""Column beside the scores: whether the model computed a window, or left it out."""


@dataclass(frozen=True, slots=True)
class ScoredSpan:
    """One scored pair of a start and an end: a place in a window, a span of the page."""

    span: Span
    score: float
    window: int
    start_pos: int
    end_pos: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is answered to one example; always there, answered or not."""

    example_id: ExampleId
    long: Span | None = None
    long_score: float = 0.0
    shorts: tuple[Span, ...] = ()
    short_score: float = 0.0
    yes_no: YesNo = YesNo.NONE

    @property
    def answered(self) -> bool:
        """Whether anything at all was answered."""
        return self.long is not None or bool(self.shorts) or self.yes_no is not YesNo.NONE


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the answers that were weighed: a block of the page and what it says in short."""

    long: Span
    shorts: tuple[Span, ...]
    yes_no: YesNo
    long_probability: float
    short_probability: float


Weighed = Callable[[int], Sequence[Alternative]]
"""Gives so many alternatives of an example at most, best first."""
