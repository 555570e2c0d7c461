"""A dual encoder as a scorer: each text is encoded once, and its vector is kept.

The texts of a window are the question and whole blocks (``nq.preprocess.features``). The vector of
a text does not depend on the texts beside it: a text has the length to which it is padded from its
own pieces. Vectors are rounded to float16 before they are used, so that scores are the same whether
a vector was computed or kept. Kept are those used last, ``KEPT_MB`` of them in memory, and with a
``VectorFile`` all of them on disk.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nq.inference.predictor import Predictor
from nq.inference.reduction import TopK
from nq.inference.scorer import Counters, Rows, ScorerWrapper, Steps, advance
from nq.inference.vector_file import VectorFile
from nq.records import (
    SCORE_COLUMNS,
    VECTORS,
    AnswerType,
    Columns,
    Example,
    FloatArray,
    IntArray,
)

KEPT_MB = 64
"""Vectors in memory: 64 MB are those of about 60,000 blocks, for 384 units."""
ENTRY_BYTES = 256
"""What Python needs for an entry beside the numbers of the vector."""
ABSENT = -10000.0
"""Logit of the positions that stand for no block."""
KEY_BYTES = 16
CHUNK = 2048
"""Texts whose rows are in memory at once."""
SCALE = 50.0
MIDDLE = 0.8
"""A block of the cosine ``MIDDLE`` has the logit 0, as [CLS] has. ``nq tune`` fits the weight, and
prefers one near 1; e5's cosines are between 0.7 and 0.9."""


class VectorStore:
    """The vectors used last, by key, and all in a file if there is one."""

    def __init__(self, file: VectorFile | None = None, limit_bytes: int = KEPT_MB << 20) -> None:
        self.file = file
        self._room = limit_bytes
        self._vectors = OrderedDict[bytes, FloatArray]()

    def find(self, keys: Collection[bytes]) -> dict[bytes, FloatArray]:
        """Returns the vectors that are kept, float16 ``[units]``."""
        found = {key: self._vectors[key] for key in keys if key in self._vectors}
        if self.file is not None:
            values = self.file.find([key for key in keys if key not in found])
            found |= {key: np.frombuffer(value, np.float16) for key, value in values.items()}
        self._remember(found)
        return found

    def add(self, vectors: Mapping[bytes, FloatArray]) -> None:
        """Keeps vectors; those that were used longest ago make room for them."""
        self._remember(vectors)
        if self.file is not None:
            self.file.add({key: vector.tobytes() for key, vector in vectors.items()})

    def _remember(self, vectors: Mapping[bytes, FloatArray]) -> None:
        for key, vector in vectors.items():
            if key not in self._vectors:
                self._room -= vector.nbytes + ENTRY_BYTES
            self._vectors[key] = vector
            self._vectors.move_to_end(key)
        while self._room < 0:
            _, oldest = self._vectors.popitem(last=False)
            self._room += oldest.nbytes + ENTRY_BYTES


@dataclass(frozen=True, eq=False)
class Texts:
    """The texts in rows of windows, in the order of the rows.

    Args:
        row: ``[N]`` the row of each text.
        start, end: ``[N]`` half-open range of its positions there.
        pieces: its pieces, int32 ``[n]``.
    """

    row: IntArray
    start: IntArray
    end: IntArray
    pieces: Sequence[IntArray]

    @classmethod
    def of(cls, rows: Rows, cls_id: int) -> Self:
        """Finds the texts, each of which begins with [CLS], and ends before the next or a gap."""
        ids = np.ascontiguousarray(rows["input_ids"], np.int32)
        mask = rows["input_mask"] > 0
        begins = (ids == cls_id) & mask
        length = ids.shape[1]
        edges = np.where(begins | ~mask, np.arange(length), length)
        next_edge = np.minimum.accumulate(edges[:, ::-1], axis=1)[:, ::-1]
        following = np.pad(next_edge[:, 1:], ((0, 0), (0, 1)), constant_values=length)
        row, start = np.nonzero(begins)
        end = following[row, start]
        places = zip(row.tolist(), start.tolist(), end.tolist(), strict=True)
        pieces = [ids[r, first:last] for r, first, last in places]
        return cls(row, start, end, pieces)

    def first_words(self, token_map: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
        """Returns the flat position of the first word of each text, and whether it has one."""
        length = token_map.shape[1]
        words = np.flatnonzero(np.append((token_map >= 0).ravel(), True))
        first = words[np.searchsorted(words, self.row * length + self.start)]
        return first, first < self.row * length + self.end

    def kept(self, rows: Rows, wanted: NDArray[np.bool_]) -> Columns:
        """Returns mask and token map of rows in which only the question and some texts are left.

        Left are texts with a position that is ``wanted``, bool ``[W, L]``.
        """
        mask = rows["input_mask"].copy()
        counts = np.pad(np.cumsum(wanted, axis=1), ((0, 0), (1, 0)))
        is_wanted = counts[self.row, self.end] > counts[self.row, self.start]
        gone = ~(is_wanted | (self.start == 0))
        for row, start, end in zip(self.row[gone], self.start[gone], self.end[gone], strict=True):
            mask[row, start:end] = 0
        token_map = np.where(mask > 0, rows["token_map"], -1)
        return {"input_mask": mask, "token_map": token_map}


def text_key(pieces: IntArray) -> bytes:
    """Returns the digest of the pieces of a text, int32 ``[n]``."""
    return hashlib.blake2b(pieces.tobytes(), digest_size=KEY_BYTES).digest()


class VectorScorer(ScorerWrapper):
    """Scores windows by the cosine of question and blocks, whose vectors ``encoder`` computes.

    The logit of a block is at its first word, that of [CLS] is 0, and the only type with a logit is
    a long answer.
    """

    def __init__(
        self, encoder: Predictor, cls_id: int, reduction: TopK, store: VectorStore
    ) -> None:
        super().__init__(encoder)
        self.encoder = encoder
        self.counters = Counters()
        self._cls_id = cls_id
        self._reduction = reduction
        self.store = store

    def steps(self, rows: Rows, examples: Sequence[Example]) -> Steps:
        """See ``Scorer.steps``; each is a batch of texts, and the examples are not used."""
        texts = Texts.of(rows, self._cls_id)
        n_windows = len(rows["token_map"])
        before = replace(self.encoder.counters)
        n_texts = len(texts.pieces)
        steps = self._encoded(texts.pieces)
        done = 0
        while not isinstance(result := advance(steps), np.ndarray):
            already = n_windows * done // n_texts
            done += result
            yield n_windows * done // n_texts - already
        self._count(n_windows, self.encoder.counters - before, n_texts)
        logits = _logits(rows, texts, result)
        columns = self._reduction(logits, rows["token_map"])
        return dict(zip(SCORE_COLUMNS, columns, strict=True))

    def encode(self, texts: Sequence[ArrayLike]) -> FloatArray:
        """Returns the vectors of texts, each given by its pieces, float32 ``[N, units]``."""
        steps = self._encoded([np.array(pieces, np.int32) for pieces in texts])
        while not isinstance(result := advance(steps), np.ndarray):
            pass
        return result

    def _encoded(self, texts: Sequence[IntArray]) -> Generator[int, None, FloatArray]:
        """Returns the vectors of texts; yields the number of texts that a batch has encoded."""
        keys = list(map(text_key, texts))
        of_key = dict(zip(keys, texts, strict=True))
        vectors = self.store.find(of_key)
        missing = [key for key in of_key if key not in vectors]
        for first in range(0, len(missing), CHUNK):
            some = missing[first : first + CHUNK]
            rows = text_rows([of_key[key] for key in some])
            columns = yield from self.encoder.steps(rows)
            new = dict(zip(some, columns[VECTORS].astype(np.float16), strict=True))
            self.store.add(new)
            vectors |= new
        return np.array([vectors[key] for key in keys], np.float32)

    def _count(self, windows: int, done: Counters, texts: int) -> None:
        """Counts windows; of the warm-up those that have as large a share as its texts."""
        done.computed_windows = windows
        done.warmup_windows = windows * done.warmup_windows // max(texts, 1)
        done.float32_windows = windows * done.float32_windows // max(texts, 1)
        self.counters.add(done)


def text_rows(texts: Sequence[IntArray]) -> Columns:
    """Returns rows of their own for texts, each given by its pieces, padded with 0."""
    length = max(map(len, texts))
    ids = np.zeros((len(texts), length), np.int32)
    mask = np.zeros_like(ids)
    for row, pieces in enumerate(texts):
        ids[row, : len(pieces)] = pieces
        mask[row, : len(pieces)] = 1
    return {
        "input_ids": ids,
        "input_mask": mask,
        "segment_ids": np.zeros_like(ids),
        "token_map": np.full_like(ids, -1),
    }


def _logits(rows: Rows, texts: Texts, vectors: FloatArray) -> dict[str, FloatArray]:
    """Returns the logits of windows by the vectors of their texts, ``[N, units]``."""
    token_map = rows["token_map"]
    n_windows, length = token_map.shape
    is_question = texts.start == 0
    question = np.flatnonzero(is_question)[texts.row]  # of the row of each text
    first_word, has_words = texts.first_words(token_map)
    is_block = ~is_question & has_words
    start = np.full((n_windows, length), ABSENT, np.float32)
    start[:, 0] = 0.0
    logits = block_logits(vectors[is_block], vectors[question[is_block]])
    start.ravel()[first_word[is_block]] = logits
    types = np.full((n_windows, len(AnswerType)), ABSENT, np.float32)
    types[:, [AnswerType.UNKNOWN, AnswerType.LONG]] = 0.0
    return {"start_logits": start, "end_logits": start, "type_logits": types}


def block_logits(blocks: FloatArray, question: FloatArray) -> FloatArray:
    """Returns the logits of blocks by their vectors and that of the question.

    The vectors are ``[B, hidden]`` and ``[hidden]``, or one question for each block.

    >>> block_logits(np.array([[0.6, 0.8], [1.0, 0.0]]), np.array([1.0, 0.0])).round(3).tolist()
    [-10.0, 10.0]
    """
    cosines = np.sum(blocks * question, axis=-1)
    return np.asarray(SCALE * (cosines - MIDDLE))
