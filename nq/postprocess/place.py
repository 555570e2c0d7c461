"""Where on its page a block stands: how far down, among the blocks of its type.

Natural Questions are answered at the top of a page more often than not: of 463 questions, a sample
of BERT-Joint's training features, 40 % in the first paragraph, 11 % in the second, 8 % in the first
table. The share of the n-th falls as a power of n (the figures: ``python -m experiments.places``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from nq.config import ChoiceWeights
from nq.records import Example, FloatArray

USUAL = ChoiceWeights(table=-1.73, list=-3.04, place=-1.71)
"""What a decision expects of places before it has learnt better."""


def place(example: Example, candidates: Iterable[int]) -> FloatArray:
    """Log of n for the n-th block of its type, of each of those top-level candidates.

    Blocks without a word are not counted. All 0 where the page has blocks of one type only: what
    is a mere collection of paragraphs need not be in the order of a page.
    """
    counts: Counter[str] = Counter()
    number: dict[int, int] = {}
    for index, candidate in enumerate(example.candidates):
        span = candidate.span
        if candidate.top_level and not all(example.is_html[span.start : span.end]):
            kind = example.block_type(span)
            counts[kind] += 1
            number[index] = counts[kind]
    whole = len(counts) > 1
    return np.array([np.log(number[i]) if whole else 0.0 for i in candidates], np.float64)
