"""Where on its page a block stands: how far down, among the blocks of its type.

Natural Questions are answered at the top of a page more often than not: of 463 questions, a sample
of BERT-Joint's training features, 40 % in the first paragraph, 11 % in the second, 8 % in the first
table. The share of the n-th falls as a power of n (the figures: ``python -m experiments.places``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from nq.config import RankingWeights
from nq.records import FloatArray

USUAL = RankingWeights(table=-1.73, list=-3.04, place=-1.71)
"""What a decision expects of places before it has learnt better."""


WHOLE = 20
"""Blocks of a page at least; fewer are an excerpt, of which nobody knows where it stood."""


def place(types: Sequence[str]) -> FloatArray:
    """``[B, 3]`` whether a block is a table, a list, and log of n for the n-th of its type.

    All 0 for an excerpt, and where all blocks are of one type: what is a mere collection of
    paragraphs need not be in the order of a page.

    Args:
        types: of the blocks of a page, in their order.
    """
    if len(types) < WHOLE or len(set(types)) < 2:
        return np.zeros((len(types), 3))
    counts: Counter[str] = Counter()
    numbers = []
    for kind in types:
        counts[kind] += 1
        numbers.append(counts[kind])
    kinds = np.array(types)
    return np.column_stack([kinds == "Table", kinds == "List", np.log(numbers)])
