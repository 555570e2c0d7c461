"""Tests of BM25 against the formula, computed word by word."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.postprocess.bm25 import B, K, bm25, candidate_bm25
from nq.records import Candidate, Example, Span

words = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=8)


def slow_bm25(question: list[str], blocks: list[list[str]]) -> list[float]:
    mean = max(1.0, sum(map(len, blocks)) / len(blocks)) if blocks else 1.0
    scores = []
    for block in blocks:
        score = 0.0
        for word in set(question):
            df = sum(word in other for other in blocks)
            idf = math.log(1 + (len(blocks) - df + 0.5) / (df + 0.5))
            tf = block.count(word)
            score += idf * tf * (K + 1) / (tf + K * (1 - B + B * len(block) / mean))
        scores.append(score)
    return scores


@given(words, st.lists(words, max_size=5))
def test_scores_are_those_of_the_formula(question: list[str], blocks: list[list[str]]) -> None:
    assert bm25(" ".join(question), blocks).tolist() == pytest.approx(slow_bm25(question, blocks))


def test_candidates_are_scored_without_tags_and_case() -> None:
    tokens = ["<P>", "Who", "a", "<Table>", "who", "who", "b"]
    candidates = [Candidate(Span(0, 3), True), Candidate(Span(3, 7), True)]
    example = Example(1, "WHO?", tokens, [token[0] == "<" for token in tokens], candidates)
    blocks = [["who", "a"], ["who", "who", "b"]]
    scores = candidate_bm25(example, [0, 1]).tolist()
    assert scores == pytest.approx(slow_bm25(["who"], blocks))
    scores = candidate_bm25(example, [1]).tolist()
    assert scores == pytest.approx(slow_bm25(["who"], blocks[1:]))
