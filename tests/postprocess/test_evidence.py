"""Tests of the evidence of a page against the sum over its hypotheses, one by one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.config import RankingWeights
from nq.postprocess.evidence import gather_evidence
from nq.records import AnswerType, Span
from tests.postprocess import synthetic_pages
from tests.postprocess.slow_evidence import MAX_PIECES, answer_odds, block_odds

seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.booleans())
def test_the_score_of_a_block_is_that_of_its_best_window(seed: int, ties: bool) -> None:
    example, scores = synthetic_pages.page(seed, ties)
    evidence = gather_evidence(example, scores, MAX_PIECES)
    expected = block_odds(example, scores, 1.0)
    assert evidence.blocks.tolist() == sorted(expected)
    log_odds = [math.log(expected[block]) for block in sorted(expected)]
    assert evidence.block_scores().tolist() == pytest.approx(log_odds, abs=1e-6)


@given(seeds, st.booleans())
def test_the_options_of_a_block_sum_all_their_hypotheses(seed: int, ties: bool) -> None:
    example, scores = synthetic_pages.page(seed, ties)
    evidence = gather_evidence(example, scores, MAX_PIECES)
    odds = answer_odds(example, scores)
    for row, block in enumerate(evidence.blocks.tolist()):
        options = evidence.options(row)
        summed = {
            (AnswerType(kind), Span(start, end + 1) if kind == AnswerType.SHORT else None): value
            for kind, (start, end), value in zip(
                options.types, options.spans.tolist(), options.evidence, strict=True
            )
        }
        expected = {
            (kind, span): math.log(value) for (b, kind, span), value in odds.items() if b == block
        }
        assert summed == pytest.approx(expected, abs=1e-6)


@given(seeds)
def test_options_have_a_log_length_and_a_mark_for_each_type(seed: int) -> None:
    example, scores = synthetic_pages.page(seed)
    evidence = gather_evidence(example, scores, MAX_PIECES)
    for row in range(len(evidence.blocks)):
        options = evidence.options(row)
        for kind, (start, end), features in zip(
            options.types.tolist(), options.spans.tolist(), options.features.tolist(), strict=True
        ):
            short = kind == AnswerType.SHORT
            length = math.log1p(end - start) if short else 0.0
            marks = [float(kind == AnswerType.LONG), float(kind in (AnswerType.YES, AnswerType.NO))]
            assert features == pytest.approx([length, *marks])
        probabilities = options.probabilities(RankingWeights(short_evidence=0.3, yes_no=2.0))
        assert probabilities.sum() == pytest.approx(1.0)
