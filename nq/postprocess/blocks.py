"""The blocks of a page, and the features of each that are known before the model runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from nq.config import RankingWeights
from nq.postprocess.bm25 import candidate_bm25
from nq.records import Example, FloatArray, IntArray, Span

BOILERPLATE = (("^",), ("Jump", "up"), ("This", "page", "was", "last", "edited"))
"""First words of notes, references and page footers, which are never answers."""
MIN_BLOCKS = 20
"""Blocks of a whole page at least; with fewer it may be an excerpt, without true positions."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The blocks of a page that may be answers.

    Args:
        of_token: ``[T]`` candidate index of the block of each document token, -1 for none.
        candidates: ``[B]`` candidate indices of the blocks; blocks without words are left out.
        features: ``[B, 4]`` in the order of ``RankingWeights.block_vector``.
    """

    of_token: IntArray
    candidates: IntArray
    features: FloatArray

    @classmethod
    def of(cls, example: Example, min_blocks: int = MIN_BLOCKS) -> Blocks:
        """Returns the blocks of an example's page; for ``min_blocks`` see ``position_features``."""
        of_token = block_of_token(example)
        candidates = np.unique(of_token[(of_token >= 0) & ~np.array(example.is_html, np.bool_)])
        types = [example.block_type(example.candidates[i].span) for i in candidates]
        with_text = np.where(np.isin(of_token, candidates), of_token, -1)
        scores = candidate_bm25(example, candidates.tolist())
        features = np.column_stack([scores, position_features(types, min_blocks)])
        return cls(with_text, candidates, features)

    def only(self, candidates: IntArray) -> Blocks:
        """Returns the blocks that have one of these candidate indices."""
        kept = np.isin(self.candidates, candidates)
        of_token = np.where(np.isin(self.of_token, candidates), self.of_token, -1)
        return Blocks(of_token, self.candidates[kept], self.features[kept])

    def prior(self, weights: RankingWeights) -> FloatArray:
        """Returns ``[B]`` the part of each block's utility that is known before the model runs."""
        return self.features @ weights.block_vector()


def position_features(types: Sequence[str], min_blocks: int = MIN_BLOCKS) -> FloatArray:
    """Returns ``[B, 3]``: is a table, is a list, and log(n) for the n-th block of its type.

    All are 0 for an excerpt, and where all blocks have one type: a collection of paragraphs need
    not be in the order of a page.

    Args:
        types: of the blocks of a page, in page order.
        min_blocks: a page with fewer blocks is an excerpt.
    """
    if len(types) < min_blocks or len(set(types)) < 2:
        return np.zeros((len(types), 3))
    counts: Counter[str] = Counter()
    numbers = []
    for kind in types:
        counts[kind] += 1
        numbers.append(counts[kind])
    kinds = np.array(types)
    return np.column_stack([kinds == "Table", kinds == "List", np.log(numbers)])


def block_of_token(example: Example) -> IntArray:
    """Returns for each document token the first top-level candidate that contains it, ``[T]``.

    The value is -1 for tokens outside of all blocks, and in notes, references and footers.
    """
    block = np.full(len(example.tokens), -1)
    for index in range(len(example.candidates) - 1, -1, -1):
        candidate = example.candidates[index]
        if candidate.top_level:
            span = candidate.span
            block[span.start : span.end] = -1 if _is_boilerplate(example, span) else index
    return block


def _is_boilerplate(example: Example, span: Span) -> bool:
    words = (i for i in range(span.start, span.end) if not example.is_html[i])
    first = [example.tokens[i] for i in islice(words, max(map(len, BOILERPLATE)))]
    return any(first[: len(prefix)] == list(prefix) for prefix in BOILERPLATE)
