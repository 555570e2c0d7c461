"""Spans: the scored pairs of start and end positions in all windows of an example.

The score of a pair is that of both originals,
start logit + end logit - (start logit of [CLS] + end logit of [CLS]).
"""

import enum
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from nq.records import FloatArray, IntArray, Span, WindowScores


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """P scored pairs, best first; ``start_doc`` and ``end_doc`` (inclusive) are document tokens."""

    score: FloatArray
    window: IntArray
    start_pos: IntArray
    end_pos: IntArray
    start_doc: IntArray
    end_doc: IntArray

    def __len__(self) -> int:
        return len(self.score)

    def where(self, keep: Any) -> Self:
        """Returns the pairs that a mask or indices select."""
        return type(self)(*(getattr(self, name)[keep] for name in self.__slots__))

    def span(self, i: int) -> Span:
        return Span(int(self.start_doc[i]), int(self.end_doc[i]) + 1)


class Ties(enum.Enum):
    """Which of several pairs with equal scores comes first."""

    POSITION = "the first window, then the first start, then the first end position"
    SUMMARY = (
        "the largest start + end logit, sum of [CLS] logits, first type logit, second one and so "
        "on, then the first window, the best start, the best end"
    )
    LAST = "the last window, then the best end, then the best start, the last of equal ones"


def pairs(
    scores: WindowScores,
    max_pieces: int | None = None,
    min_pieces: int = 1,
    k: int | None = None,
    dtype: Any = np.float64,
    ties: Ties = Ties.POSITION,
    backwards: bool = False,
) -> Pairs:
    """Returns all valid pairs of the k best starts and the k best ends of each window.

    Args:
        max_pieces, min_pieces: limits of the length of a span in pieces.
        k: number of positions to pair; by default all in ``scores``.
        dtype: in which scores are added; the originals differ.
        backwards: whether to keep pairs whose document tokens run backwards, which exist where
            the candidates of a page are not in page order.
    """
    length = scores.end_pos[:, None, :k] - scores.start_pos[:, :k, None] + 1
    starts = scores.start_doc[:, :k, None]
    ends = scores.end_doc[:, None, :k]
    valid = (starts >= 0) & (ends >= (0 if backwards else starts)) & (length >= min_pieces)
    if max_pieces is not None:
        valid &= length <= max_pieces
    window, i, j = np.nonzero(valid)
    start = scores.start_logit.astype(dtype)[window, i]
    end = scores.end_logit.astype(dtype)[window, j]
    cls = scores.cls_logit.astype(dtype)[window]
    cls_sum = cls[:, 0] + cls[:, 1]
    score = (start + end) - cls_sum
    start_pos = scores.start_pos[window, i]
    end_pos = scores.end_pos[window, j]
    keys: tuple[Any, ...]
    match ties:
        case Ties.POSITION:
            keys = end_pos, start_pos, window
        case Ties.SUMMARY:
            types = -scores.type_logits[window, ::-1].T
            keys = j, i, window, *types, -cls_sum, -(start + end)
        case Ties.LAST:
            keys = -start_pos, -start, -end_pos, -end, -window
    docs = scores.start_doc[window, i], scores.end_doc[window, j]
    order = np.lexsort((*keys, -score))
    return Pairs(score, window, start_pos, end_pos, *docs).where(order)


def softmax(x: FloatArray) -> FloatArray:
    """Returns the softmax over a vector, without the import of ``scipy.special``, 0.2 s.

    >>> softmax(np.array([0.0, np.log(3.0)])).round(2).tolist()
    [0.25, 0.75]
    """
    exponentials = np.exp(x - x.max())
    return np.asarray(exponentials / exponentials.sum())
