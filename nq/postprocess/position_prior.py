"""Position prior: features of where on its page a block is, among the blocks of its type.

Natural Questions are answered at the top of a page more often than not: of 463 questions, a sample
of BERT-Joint's training features, 40 % in the first paragraph, 11 % in the second, 8 % in the first
table. The share of the n-th falls as a power of n (measured by ``python -m
experiments.positions``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from nq.config import CascadeWeights, RankingWeights
from nq.records import FloatArray

PRIOR_WEIGHTS = RankingWeights(table=-1.73, list=-3.04, position=-1.71)
"""Weights measured on BERT-Joint's training features; fitting starts from them."""
CASCADE_PRIOR_WEIGHTS = CascadeWeights(**PRIOR_WEIGHTS.to_dict())
"""The same for a cascade; the block scores of its first model have no weight yet."""

MIN_BLOCKS = 20
"""Blocks of a whole page at least; with fewer it may be an excerpt, without true positions."""


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
