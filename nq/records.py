"""The records that pass between the stages, as frozen dataclasses.

Coordinates carry their unit in the name: ``doc`` is an index into the document's
tokens, ``pos`` an index into one window's row of pieces. Spans are half-open.
"No answer" is ``None``; -1 is used only where a file format prescribes it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
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

    @property
    def tokens(self) -> tuple[int, int]:
        """The first token, and the one behind the last."""
        return self.start, self.end

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


class Answer:
    """A long and a short answer, or neither: of an annotator, a decision or an n-best list."""

    __slots__ = ()
    long: Span | None
    shorts: tuple[Span, ...]
    yes_no: YesNo

    @property
    def has_short(self) -> bool:
        """Whether there is a short or a yes/no answer."""
        return bool(self.shorts) or self.yes_no is not YesNo.NONE

    @property
    def answered(self) -> bool:
        """Whether there is a long, a short or a yes/no answer."""
        return self.long is not None or self.has_short


@dataclass(frozen=True, slots=True)
class Annotation(Answer):
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

    @property
    def key(self) -> ExampleKey:
        """Tells the record from all others of the input."""
        return self.file_index, self.line


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


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage that a retriever found: id and score are ``None`` without one, ranks are from 1."""

    passage_id: ExampleId | None
    title: str
    rank: int
    score: float | None = None


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
        passages: the passages that the candidates are; ``None`` where no retriever found them.
        answer_rank: the rank of the first passage whose text has a gold answer; ``None`` if none of
            them has one.
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
    passages: tuple[Passage, ...] | None = None
    answer_rank: int | None = None

    def passage(self, span: Span) -> Passage | None:
        """Returns the passage that contains a span, ``None`` if there is none."""
        pairs = zip(self.candidates, self.passages or (), strict=False)
        return next((one for block, one in pairs if block.span.contains(span)), None)

    @property
    def lost_at_retrieval(self) -> bool:
        """Whether the passages that a retriever found have none of the gold answers."""
        is_retrieved = self.answer_rank is not None or bool(self.annotations)
        return self.passages is not None and bool(self.answers) and not is_retrieved

    @property
    def lacks_passage(self) -> bool:
        """Whether gold is yes or no as text, and tells not which passage of the page says it."""
        gold = self.annotations or ()
        says_yes_no = any(one.yes_no is not YesNo.NONE for one in gold)
        return self.answers is not None and says_yes_no and not any(one.long for one in gold)

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


def readable_text(spelling: Sequence[str]) -> str:
    """Returns words as text: one line per paragraph, item and row, ``|`` between cells."""
    lines = (" ".join(line.split()).strip(" |") for line in "".join(spelling).split("\n"))
    return "\n".join(line for line in lines if line)


def char_span(span: Span | None, original: Original | None) -> dict[str, int]:
    """Returns where a span is in the user's text, -1 if it is ``None`` or its place not known.

    Without the user's text the result is empty.
    """
    if original is None:
        return {}
    start, end = (span and original.place(span)) or (-1, -1)
    return {"start_char": start, "end_char": end}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A bad record: the reason why it cannot be used, and an excerpt of it."""

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
        window_numbers: ``[W]`` number of each window within its example; training keeps a subset.
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
    window_numbers: IntArray
    n_windows: int
    start_positions: IntArray | None = None
    end_positions: IntArray | None = None
    answer_types: IntArray | None = None

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def rows(self) -> Columns:
        """The windows as scorers take them: the columns ``WINDOW_COLUMNS`` and ``window_ids``."""
        numbers = self.window_numbers
        ids = np.stack([numbers, np.full_like(numbers, self.n_windows)], axis=1)
        return {**{name: getattr(self, name) for name in WINDOW_COLUMNS}, "window_ids": ids}


MODEL_INPUTS = ("input_ids", "input_mask", "segment_ids")
"""Columns of windows that a model reads, each ``[W, L]``."""
WINDOW_COLUMNS = (*MODEL_INPUTS, "token_map")
"""Columns of windows that a model and the reduction of its logits read, each ``[W, L]``."""


@dataclass(frozen=True, eq=False)
class Windowed:
    """An example with the rows of its windows.

    Args:
        rows: ``Features.rows``, and of an example from a file the columns ``example_keys``.
        source: the place of the example in a file; by default it is from memory.
        unread_blocks: blocks with text beyond ``max_contexts``.
        seconds: that making the windows took.
    """

    example: Example
    rows: Columns
    source: Source = Source(0, "", 0)
    unread_blocks: int = 0
    seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.rows["window_ids"])


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
    """The scores of one example by two models: the ranker ranks the blocks, the reader reads some.

    ``read`` has the ascending candidate indices of the blocks that the reader read as a whole.
    """

    ranker: WindowScores
    reader: WindowScores
    read: IntArray

    def __len__(self) -> int:
        return len(self.ranker) + len(self.reader)


Scores = WindowScores | CascadeScores
"""The scores of one example."""

SCORE_COLUMNS = tuple(WindowScores.__slots__)
"""Names of the score columns, in the order in which engines return them."""
VECTORS = "vectors"
"""Column of texts that a dual encoder has encoded, float32 ``[texts, hidden]``."""
READ = "read"
"""Optional column: whether the model computed the window, or pruning left it out."""
RESCORED = "rescored"
"""Optional column: whether the window belongs to a close decision computed again in float32."""
READER_WINDOW = "reader_window"
"""Column of a cascade: the number of a window of the reader, -1 for one of the ranker."""
READ_BLOCKS = "read_blocks"
"""Column of a cascade: half-open range of the candidate indices of those blocks in a window of the
reader that it read as a whole; -1 for none, and for windows of the ranker."""

Columns = dict[str, np.ndarray[Any, Any]]
"""Named arrays with one row per window."""


@dataclass(frozen=True, slots=True)
class Prediction(Answer):
    """The prediction for one example; every example has exactly one, answered or not."""

    example_id: ExampleId
    long: Span | None = None
    long_score: float = 0.0
    shorts: tuple[Span, ...] = ()
    short_score: float = 0.0
    yes_no: YesNo = YesNo.NONE


@dataclass(frozen=True, slots=True)
class Alternative(Answer):
    """One entry of the n-best list: a block of the page and its best short answer.

    With ``asks_yes_no`` that is yes or no, and the model cannot tell which.
    """

    long: Span
    shorts: tuple[Span, ...]
    yes_no: YesNo
    long_probability: float
    short_probability: float
    asks_yes_no: bool = False
