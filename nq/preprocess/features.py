"""example -> features: all windows of one page as integer rows.

[CLS] [Q] who wrote … [SEP] [ContextId=-1] [NoLongAnswer] … [SEP] 0 0 0
0     0   0   0       0     1              1                1     0 0 0     segment_ids
-1    -1  -1  -1      -1    -1             -1             …  -1   -1 -1 -1  token_map

With a tokenizer of RoBERTa or MPNet <s> and </s> are the special pieces, two </s> separate question
and page, and all segments are 0.

The target of training follows the rules of BERT-Joint: of the annotations by candidate index the
first with short answers, else the first; several short answers are merged to one span, from the
first in the file to the last; yes and no count only without short answers; without any of these the
target is the whole block. Ours differs where several short answers are far apart, because the
merged span is no answer: it takes the first short answer of the page, with those that follow it as
in a list.

A dual encoder has several texts in a window, the question and whole blocks, each as it is encoded
by itself. The question has the room of the longest one, so that the texts of a page are the same
for all questions; a block that is longer than a window is divided into several texts:

[CLS] query: who … [SEP] [CLS] passage: The flow … [SEP] [CLS] passage: He … [SEP] 0 0

In windows of running text the target is that of ``run_qa`` of transformers: the short answer of the
first annotator who gave one, in pieces that begin and end with it or around it.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from nq.config import PAGE_SCOPE, TEXT_SCOPE, WindowConfig
from nq.formats.fields import LIMITS, RecordError
from nq.preprocess import contexts as ctx
from nq.preprocess.contexts import RunningText
from nq.preprocess.tokenizers.base import Tokenizer
from nq.records import (
    UNLABELLED,
    Annotation,
    AnswerType,
    Columns,
    Context,
    Example,
    Features,
    IntArray,
    Span,
    Target,
    YesNo,
)

LIST_GAP = 2
"""Words between two items of a list at most: a comma and ``and``."""
NO_TARGET = Target(AnswerType.UNKNOWN, 0, 0)
_YES_NO = {YesNo.YES: AnswerType.YES, YesNo.NO: AnswerType.NO}


@dataclass(frozen=True)
class Sampling:
    """Which windows without an answer a training has: the share ``negatives``.

    The draw depends on ``seed`` and on the example's id. Pages without annotations have some only
    if ``unlabelled``, with the type ``UNLABELLED``.
    """

    negatives: float
    seed: int
    unlabelled: bool = False


def window_ranges(n_pieces: int, length: int, stride: int) -> list[tuple[int, int]]:
    """Returns half-open piece ranges that cover a page.

    Windows begin at 0 and then every ``stride`` pieces until one reaches the end. Where
    ``length`` is smaller than ``stride`` they follow each other without a gap.

    >>> window_ranges(10, length=6, stride=3)
    [(0, 6), (3, 9), (6, 10)]
    """
    step = min(length, stride)
    end = max(min(n_pieces, 1), n_pieces - length + step)
    return [(start, min(start + length, n_pieces)) for start in range(0, end, step)]


def query(question: str, tokenizer: Tokenizer, config: WindowConfig) -> list[int]:
    """Returns ``[Q]`` and the question's pieces; beyond ``max_query_length`` the last ones.

    A dual encoder has its prefix in place of ``[Q]``.
    """
    pieces = list(chain.from_iterable(tokenizer.encode(question.split(" "))))
    if config.window_scope == TEXT_SCOPE:
        head = prefix(config.question_prefix, tokenizer)
    else:
        head = [tokenizer.marker_id("[Q]")]
    surplus = max(0, len(head) + len(pieces) - config.max_query_length)
    if config.switches.keep_query_marker:
        return head + pieces[surplus:]
    return (head + pieces)[surplus:]


def prefix(text: str, tokenizer: Tokenizer) -> list[int]:
    """Returns the pieces of a prefix of questions or blocks (``WindowConfig``)."""
    return list(chain.from_iterable(tokenizer.encode(text.split())))


def features(example: Example, tokenizer: Tokenizer, config: WindowConfig) -> Features:
    """Returns all windows of an example, for inference.

    Raises:
        RecordError: the question leaves no room for the page, or there are too many windows.
    """
    builder = _WindowBuilder(example, tokenizer, config)
    every = np.arange(len(builder.ranges))
    return Features(
        example.example_id,
        **builder.rows(every),
        window_numbers=every,
        n_windows=len(every),
    )


def training_features(
    example: Example, tokenizer: Tokenizer, config: WindowConfig, sampling: Sampling
) -> Features:
    """Returns the windows of an example to train on, with their targets.

    A window is positive only if it holds the whole target; some of the others are kept. Errors are
    those of ``features``.
    """
    builder = _WindowBuilder(example, tokenizer, config)
    if builder.text is None:
        words = target(example, builder.contexts, config)
    else:
        words = text_target(example, builder.text, config)
    no_answer: int = AnswerType.UNKNOWN
    share = sampling.negatives
    if words is None:
        words = NO_TARGET
        no_answer = UNLABELLED
        share = share if sampling.unlabelled else 0
    first, last = builder.target_pieces(words)
    starts, ends = builder.ranges.T
    positive = (starts <= first) & (last < ends) & (first <= last)
    draw = random.Random(f"{sampling.seed}/{example.example_id}")
    sampled = [draw.random() < share for _ in starts]
    kept = np.flatnonzero(positive | sampled)
    positive = positive[kept]
    shift = builder.offset - starts[kept]
    return Features(
        example.example_id,
        **builder.rows(kept),
        window_numbers=kept,
        n_windows=len(starts),
        start_positions=np.where(positive, first + shift, 0),
        end_positions=np.where(positive, last + shift, 0),
        answer_types=np.where(positive, words.kind, no_answer),
    )


def chosen_annotation(annotations: Sequence[Annotation]) -> Annotation | None:
    """Returns the annotation that training follows, ``None`` where none has a long answer."""
    answered = [a for a in annotations if a.long is not None and a.candidate is not None]
    return min(answered, key=lambda a: (not a.shorts, a.candidate or 0), default=None)


def target(example: Example, contexts: Sequence[Context], config: WindowConfig) -> Target | None:
    """Returns the target as a range of words, ``None`` for a page that training leaves out.

    An answer in a nested candidate or beyond the last context is ``NO_TARGET`` in every mode (the
    originals label wrong words).
    """
    if example.annotations is None and not config.switches.keep_unannotated:
        return None
    annotation = chosen_annotation(example.annotations or ())
    if annotation is None:
        return None if example.lacks_passage else NO_TARGET
    first = 0
    short = _merged(annotation.shorts, config)
    for context in contexts:
        first += len(context.markers)
        if context.candidate == annotation.candidate:
            break
        first += len(context.words)
    else:
        return NO_TARGET
    if short is None:
        kind = _YES_NO.get(annotation.yes_no, AnswerType.LONG)
        words = Target(kind, first, first + len(context.words) - 1)
    else:
        inside = [i for i, doc in enumerate(context.doc) if short.start <= doc < short.end]
        if not inside or not example.candidates[context.candidate].span.contains(short):
            return NO_TARGET
        words = Target(AnswerType.SHORT, first + inside[0], first + inside[-1])
    return _after_splitting(words, contexts) if config.switches.split_words_again else words


def text_target(example: Example, text: RunningText, config: WindowConfig) -> Target | None:
    """Returns the target as a range of tokens of ``text``, ``None`` if training leaves it out.

    Yes, no and a passage alone are left out, too: they are answers, but no spans.
    """
    if example.annotations is None:
        return None
    shorts = next((one.shorts for one in example.annotations if one.shorts), ())
    short = _merged(shorts, config)
    if short is None:
        others = (one.long or one.yes_no is not YesNo.NONE for one in example.annotations)
        return None if any(others) else NO_TARGET
    inside = np.flatnonzero((short.start <= text.tokens) & (text.tokens < short.end))
    if not len(inside):
        return NO_TARGET
    return Target(AnswerType.SHORT, int(inside[0]), int(inside[-1]))


def _merged(shorts: Sequence[Span], config: WindowConfig) -> Span | None:
    """Returns the span that stands for several short answers."""
    if not shorts:
        return None
    if config.switches.merge_all_short_answers:
        return Span(shorts[0].start, shorts[-1].end)
    first, *others = sorted(shorts)
    end = first.end
    for short in others:
        if short.start - end <= LIST_GAP:
            end = max(end, short.end)
    return Span(first.start, end)


def _after_splitting(target: Target, contexts: Sequence[Context]) -> Target | None:
    """Returns the target among the words as the originals split them again.

    They look up the word under the first and the last character, which is the previous word where
    that character is a blank, and skip the page if the words, joined, do not spell the answer:
    that is, if it has blanks inside at which they do not split, such as U+00A0.
    """
    words = [word for context in contexts for word in (*context.markers, *context.words)]
    answer = " ".join(words[target.first : target.last + 1])
    again = ctx.split_again(words[: target.last + 1])
    start = len(ctx.split_again(words[: target.first]))
    if not ctx.split_again([answer[:1]]):
        start -= 1
    if " ".join(answer.split()) not in " ".join(again[start:]):
        return None
    return Target(target.kind, start, len(again) - 1)


class _WindowBuilder:
    """The pieces of one page and of its question, from which the rows of windows are cut.

    ``pieces`` and ``doc`` ``[P]`` have the id and the document token, -1 for a marker, of each
    piece, and ``ranges`` ``[W, 2]`` the pieces of each window. A page begins at ``offset`` in each
    row. Words have ``first_piece`` ``[n_words + 1]``, the index of each word's first one, then P;
    running text has ``text`` and ``chars`` ``[P, 2]``, the characters of each piece.
    """

    text: RunningText | None = None

    def __init__(self, example: Example, tokenizer: Tokenizer, config: WindowConfig) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.contexts = ctx.contexts(example, config)
        if config.window_scope == TEXT_SCOPE:
            self.separators = 1
            self.segment = 0
            ranges = self._read_texts(example)
        else:
            self.separators = tokenizer.separators
            self.segment = int(tokenizer.segments)
            read = self._read_text if config.switches.running_text else self._read_words
            ranges = self._cut(read(example))
        self.offset = 1 + len(self.query) + self.separators
        self.ranges = np.array(ranges or [(0, 0)], np.int64)
        windows = len(ranges)
        LIMITS.check(windows=windows, window_pieces=windows * config.max_seq_length)

    def _cut(self, parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Returns the windows in which piece ranges are cut that follow the question."""
        length = self.config.max_seq_length - len(self.query) - self.separators - 2
        self._check_room(length)
        return [
            (first + start, first + end)
            for first, last in parts
            for start, end in window_ranges(last - first, length, self.config.doc_stride)
        ]

    def _check_room(self, pieces: int) -> None:
        if pieces < 1:
            raise RecordError(
                f"max_seq_length {self.config.max_seq_length} leaves no room for the page behind a "
                f"question of {len(self.query)} pieces; choose a larger one"
            )

    def _read_texts(self, example: Example) -> list[tuple[int, int]]:
        """Reads the blocks as texts; returns the windows, each without its last [SEP]."""
        config = self.config
        tokenizer = self.tokenizer
        self.query = query(example.question, tokenizer, config)
        head = [tokenizer.cls_id, *prefix(config.block_prefix, tokenizer)]
        room = config.max_seq_length - config.max_query_length - 2
        longest = room - len(head) - 1
        self._check_room(longest)
        pieces = list[int]()
        doc = list[int]()
        ranges = list[tuple[int, int]]()
        first = 0
        for context in self.contexts:
            encoded = tokenizer.encode(context.words)
            ids = list(chain.from_iterable(encoded))
            tokens = np.repeat(context.doc, list(map(len, encoded))).tolist()
            for start, end in window_ranges(len(ids), longest, config.doc_stride):
                begin = len(pieces)
                pieces += [*head, *ids[start:end], tokenizer.sep_id]
                doc += [*[-1] * len(head), *tokens[start:end], -1]
                if len(pieces) - first > room:
                    ranges.append((first, begin - 1))
                    first = begin
        if pieces:
            ranges.append((first, len(pieces) - 1))
        self._set_pieces(pieces, doc)
        return ranges

    def _read_text(self, example: Example) -> list[tuple[int, int]]:
        """Reads the blocks as running text; returns the piece ranges in which windows are cut."""
        self.text = text = ctx.running_text(example, self.contexts)
        pieces = self.tokenizer.encode_text(text.text)
        self.chars = pieces.chars
        question = self.tokenizer.encode_text(example.question).ids
        self.query = list(question[: self.config.max_query_length])
        self._set_pieces(pieces.ids, text.tokens_of(pieces.chars))
        if self.config.window_scope == PAGE_SCOPE:
            return [(0, len(pieces.ids))]
        edges = np.searchsorted(pieces.chars[:, 1], text.blocks, side="right")
        return list(pairwise([*edges.tolist(), len(pieces.ids)]))

    def _set_pieces(self, pieces: Sequence[int], doc: Iterable[int]) -> None:
        """Keeps the pieces of texts, and one more, so that there is never none at all."""
        self.pieces = np.array([*pieces, self.tokenizer.pad_id], np.int32)
        self.doc = np.array([*doc, -1], np.int32)

    def _read_words(self, example: Example) -> list[tuple[int, int]]:
        """Reads the blocks with markers; returns the piece ranges in which windows are cut."""
        tokenizer = self.tokenizer
        config = self.config
        words = ctx.words(self.contexts, config)
        encoded = tokenizer.encode(words.words)
        for i in words.markers:
            encoded[i] = (tokenizer.marker_id(words.words[i]),)
        lengths = list(map(len, encoded))
        self.pieces = np.fromiter(chain.from_iterable(encoded), np.int32, sum(lengths))
        self.doc = np.repeat(np.asarray(words.doc, np.int32), lengths)
        self.first_piece = np.concatenate([[0], np.cumsum(lengths)])
        self.query = query(example.question, tokenizer, config)
        if config.window_scope == PAGE_SCOPE:
            return [(0, len(self.pieces))]
        first_words = [*words.markers[::2], len(words.words)]
        parts = list(pairwise(self.first_piece[first_words].tolist()))
        return parts[1:] or parts  # the null context is one only where there is no block

    def target_pieces(self, words: Target) -> tuple[int, int]:
        """Returns the first and the last piece of a target; of one without pieces they cross."""
        if words.kind is AnswerType.UNKNOWN:
            return 0, -1
        if self.text is None:
            return int(self.first_piece[words.first]), int(self.first_piece[words.last + 1]) - 1
        start, end = self.text.chars[words.first, 0], self.text.chars[words.last, 1]
        first = int(np.searchsorted(self.chars[:, 0], start, side="right")) - 1
        last = int(np.searchsorted(self.chars[:, 1], end))
        return min(first, last), max(first, last)  # they cross where pieces share a character

    def rows(self, kept: IntArray) -> Columns:
        """Returns the integer rows ``[len(kept), L]`` of the windows with those numbers."""
        tokenizer = self.tokenizer
        head = [tokenizer.cls_id, *self.query, *[tokenizer.sep_id] * self.separators]
        length = self.config.max_seq_length
        ranges = self.ranges[kept]
        return window_rows(head, self.pieces, self.doc, ranges, length, self.segment, tokenizer)


def window_rows(
    head: Sequence[int],
    pieces: IntArray,
    doc: IntArray,
    ranges: IntArray,
    length: int,
    segment: int,
    tokenizer: Tokenizer,
) -> Columns:
    """Returns the integer rows ``[W, L]`` of windows, the columns ``WINDOW_COLUMNS``.

    Args:
        head: the pieces before the page: [CLS], question and separators.
        pieces, doc: ``[P]`` piece and document token of each piece of the page; there is one.
        ranges: ``[W, 2]`` the pieces of each window.
        length: of a row.
        segment: that of the page.
    """
    offset = len(head)
    start, end = ranges[:, :1], ranges[:, 1:]
    pos = np.arange(length)[None, :]
    piece = start + pos - offset
    in_span = (pos >= offset) & (piece < end)
    last = offset + (end - start)
    piece = np.where(in_span, piece, 0)
    ids = np.where(in_span, pieces[piece], tokenizer.pad_id)
    ids[:, :offset] = head
    np.put_along_axis(ids, last, tokenizer.sep_id, axis=1)
    mask = pos <= last
    return {
        "input_ids": ids.astype(np.int32),
        "input_mask": mask.astype(np.int32),
        "segment_ids": np.where(mask & (pos >= offset), segment, 0).astype(np.int32),
        "token_map": np.where(in_span, doc[piece], -1).astype(np.int32),
    }
