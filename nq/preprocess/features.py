"""example -> features: all windows of one page as integer rows.

[CLS] [Q] who wrote … [SEP] [ContextId=-1] [NoLongAnswer] … [SEP] 0 0 0
0     0   0   0       0     1              1                1     0 0 0     segment_ids
-1    -1  -1  -1      -1    -1             -1             …  -1   -1 -1 -1  token_map

Where the tokenizer is a RoBERTa's, <s> and </s> are the special pieces, two </s> stand
between question and page, and all segments are 0.
"""

from __future__ import annotations

import random
from itertools import chain

import numpy as np

from nq.config import WindowConfig
from nq.preprocess import contexts as ctx
from nq.preprocess.targets import NO_TARGET, target
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.windows import windows
from nq.records import AnswerType, Example, Features, IntArray, Target

QUERY_MARKER = "[Q]"


def query(question: str, tokenizer: Tokenizer, config: WindowConfig) -> list[int]:
    """The pieces of the question after ``[Q]``, at most ``max_query_length`` in all.

    A longer question keeps its last pieces; the originals cut [Q] away with the first.
    """
    pieces = list(chain.from_iterable(tokenizer.encode(question.split(" "))))
    marker = [tokenizer.marker_id(QUERY_MARKER)]
    if config.compat == "ours":
        return marker + pieces[max(0, len(pieces) - (config.max_query_length - 1)) :]
    return (marker + pieces)[-config.max_query_length :]


def features(example: Example, tokenizer: Tokenizer, config: WindowConfig) -> Features:
    """The windows of ``example`` for inference."""
    return _Page(example, tokenizer, config).features()


def training_features(
    example: Example, tokenizer: Tokenizer, config: WindowConfig, negatives: float, seed: int
) -> Features:
    """The windows to train on, with their targets.

    A window is positive only if it holds the whole target; each other one is kept with
    probability ``negatives``, drawn from ``seed`` and the example's id alone, so that the
    choice does not depend on order or on the number of processes.
    """
    return _Page(example, tokenizer, config).training_features(negatives, seed)


class _Page:
    """A page on its way from words to rows; lives for one call."""

    def __init__(self, example: Example, tokenizer: Tokenizer, config: WindowConfig) -> None:
        self.example, self.config, self.tokenizer = example, config, tokenizer
        self.contexts = ctx.contexts(example, config)
        self.words = ctx.words(self.contexts, config)
        self.word_pieces = self._encode()
        lengths = list(map(len, self.word_pieces))
        self.pieces = np.fromiter(chain.from_iterable(self.word_pieces), np.int32, sum(lengths))
        self.doc = np.repeat(np.asarray(self.words.doc, np.int32), lengths)
        self.first_piece = np.concatenate([[0], np.cumsum(lengths)])
        self.query = query(example.question, tokenizer, config)
        room = config.max_seq_length - len(self.query) - 2 - tokenizer.separators
        if room < 1:
            raise ValueError(
                f"max_seq_length {config.max_seq_length} leaves no room for the page behind a "
                f"question of {len(self.query)} pieces; choose a larger one"
            )
        self.windows = np.array(
            windows(len(self.pieces), room, config.doc_stride), np.int64
        ).reshape(-1, 2)

    def _encode(self) -> list[tuple[int, ...]]:
        """Pieces of each word; markers are looked up, everything else is text."""
        words = self.words.words
        encoded = self.tokenizer.encode(words)
        for i in self.words.markers:
            encoded[i] = (self.tokenizer.marker_id(words[i]),)
        return encoded

    @property
    def offset(self) -> int:
        """The position of the first piece of the page."""
        return 1 + len(self.query) + self.tokenizer.separators

    def rows(self, kept: IntArray) -> dict[str, IntArray]:
        """The integer rows ``[len(kept), L]`` of the windows with those numbers."""
        length, query, tokenizer = self.config.max_seq_length, self.query, self.tokenizer
        start, end = self.windows[kept, 0, None], self.windows[kept, 1, None]
        offset = self.offset
        pos = np.arange(length)[None, :]
        source = start + pos - offset
        in_span = (pos >= offset) & (source < end)
        last = offset + (end - start)
        source = np.where(in_span, source, 0)
        ids = np.where(in_span, self.pieces[source], tokenizer.pad_id)
        ids[:, :offset] = [tokenizer.cls_id, *query, *[tokenizer.sep_id] * tokenizer.separators]
        np.put_along_axis(ids, last, tokenizer.sep_id, axis=1)
        mask = pos <= last
        return {
            "input_ids": ids.astype(np.int32),
            "input_mask": mask.astype(np.int32),
            "segment_ids": (mask & (pos >= offset) & tokenizer.segments).astype(np.int32),
            "token_map": np.where(in_span, self.doc[source], -1).astype(np.int32),
        }

    def features(self) -> Features:
        kept = np.arange(len(self.windows))
        return Features(
            self.example.example_id, **self.rows(kept), windows=kept, n_windows=len(kept)
        )

    def training_features(self, negatives: float, seed: int) -> Features:
        wanted = target(self.example, self.contexts, self.config)
        if wanted is None:
            negatives, wanted = 0, NO_TARGET
        first, last = self._target_pieces(wanted)
        positive = (self.windows[:, 0] <= first) & (last < self.windows[:, 1])
        if wanted.kind is AnswerType.UNKNOWN or last < first:
            positive = np.zeros(len(self.windows), bool)
        draw = random.Random(f"{seed}/{self.example.example_id}")
        lucky = [draw.random() < negatives for _ in range(len(self.windows))]
        kept = np.flatnonzero(positive | lucky)
        shift = self.offset - self.windows[kept, 0]
        return Features(
            self.example.example_id,
            **self.rows(kept),
            windows=kept,
            n_windows=len(self.windows),
            start_positions=np.where(positive[kept], first + shift, 0),
            end_positions=np.where(positive[kept], last + shift, 0),
            answer_types=np.where(positive[kept], wanted.kind, AnswerType.UNKNOWN),
        )

    def _target_pieces(self, wanted: Target) -> tuple[int, int]:
        """First and last piece (inclusive) of the target's words."""
        return int(self.first_piece[wanted.first]), int(self.first_piece[wanted.last + 1]) - 1
