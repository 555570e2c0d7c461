"""Lexical overlap of question and block: BM25 within one page.

    score(block) = sum over words w of the question of
                   idf(w) * tf * (k + 1) / (tf + k * (1 - b + b * length / mean length))
    idf(w) = log(1 + (n - df + 0.5) / (df + 0.5))

with tf the count of w in the block, df the number of blocks that contain it, and n the number of
blocks. Robertson and Zaragoza 2009, The Probabilistic Relevance Framework: BM25 and Beyond.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from nq.records import Example, FloatArray

K, B = 1.2, 0.75
WORD = re.compile(r"\w+")


def bm25(question: str, blocks: Sequence[Sequence[str]]) -> FloatArray:
    """Returns the BM25 score of each block of lower-case words; 0 without a common word.

    >>> bm25("Who wrote it?", [["she", "wrote", "it"], ["it", "rains"]]).round(2).tolist()
    [0.81, 0.2]
    """
    wanted = set(WORD.findall(question.lower()))
    counts: dict[str, Counter[int]] = {word: Counter() for word in sorted(wanted)}
    for number, words in enumerate(blocks):
        for word in words:
            if word in wanted:
                counts[word][number] += 1
    lengths = np.array([len(words) for words in blocks], np.float64)
    norm = K * (1 - B + B * lengths / max(lengths.mean(), 1.0)) if len(blocks) else lengths
    total = np.zeros(len(blocks))
    for count in counts.values():
        idf = np.log1p((len(blocks) - len(count) + 0.5) / (len(count) + 0.5))
        rows, tf = np.array(list(count), np.int64), np.array(list(count.values()), np.float64)
        total[rows] += idf * tf * (K + 1) / (tf + norm[rows])
    return total


def candidate_bm25(example: Example, candidates: Iterable[int]) -> FloatArray:
    """Returns the BM25 score of the question for the text of each of these candidates."""
    tokens, html = example.tokens, example.is_html
    spans = [example.candidates[i].span for i in candidates]
    blocks = [[tokens[i].lower() for i in range(s.start, s.end) if not html[i]] for s in spans]
    return bm25(example.question, blocks)
