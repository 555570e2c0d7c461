"""Tests the decision of a cascade: the order of the blocks, and the evidence of both models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.config import CascadeDecision, CascadeWeights, DecisionConfig, RankingWeights
from nq.errors import Error
from nq.inference.cascade import rank_blocks
from nq.postprocess.blocks import Blocks
from nq.postprocess.decision import decide
from nq.postprocess.evidence import IMPOSSIBLE
from nq.postprocess.fit import block_choices
from nq.postprocess.position_prior import CASCADE_PRIOR_WEIGHTS, PRIOR_WEIGHTS
from nq.postprocess.ranking import rank
from nq.records import AnswerType, CascadeScores, Example, IntArray
from tests.postprocess import synthetic_pages

seeds = st.integers(0, 2**32 - 1)
WEIGHTS = RankingWeights(evidence=0.4, bm25=0.7, table=-0.5, null=1.5, short_evidence=0.8)
RANKER = DecisionConfig(weights=RankingWeights(evidence=0.25, bm25=0.1))
CASCADE = CascadeDecision(
    long_threshold=0.2,
    weights=CascadeWeights(**WEIGHTS.to_dict()),
    ranker=RANKER,
)


def two_scores(seed: int, read: IntArray) -> tuple[Example, CascadeScores]:
    """Returns a random page with the scores of two models, of which the second read blocks."""
    example, ranker = synthetic_pages.page(seed)
    _, reader = synthetic_pages.page(seed + 1)
    return example, CascadeScores(ranker, reader, read)


def blocks_of(seed: int) -> IntArray:
    return Blocks.of(synthetic_pages.example(seed)).candidates


@given(seeds)
def test_the_best_blocks_are_those_of_the_ranking_and_then_the_others(seed: int) -> None:
    example, scores = synthetic_pages.page(seed)
    blocks = Blocks.of(example)
    ranking = rank(example, scores, RANKER, blocks)
    expected = ranking.evidence.blocks[np.argsort(-ranking.utility, kind="stable")].tolist()
    ranked = rank_blocks(example, scores, RANKER, blocks, 1000)
    assert [block.candidate for block in ranked][: len(expected)] == expected
    assert sorted(block.candidate for block in ranked) == blocks.candidates.tolist()
    for number, block in enumerate(ranked):
        assert bool(len(block.starts)) == (number < len(expected))
        assert set(blocks.of_token[block.starts].tolist()) <= {block.candidate}
    first = [block.candidate for block in rank_blocks(example, scores, RANKER, blocks, 2)]
    assert first == [block.candidate for block in ranked][:2]


@given(seeds)
def test_without_a_weight_of_the_ranker_a_reader_of_all_blocks_decides_alone(seed: int) -> None:
    example, scores = two_scores(seed, blocks_of(seed))
    alone = rank(
        example, scores.second, replace(DecisionConfig(weights=WEIGHTS), long_threshold=0.2)
    )
    both = rank(example, scores, CASCADE)
    np.testing.assert_array_equal(both.evidence.blocks, alone.evidence.blocks)
    np.testing.assert_allclose(both.utility, alone.utility, rtol=1e-12)
    one, other = decide(example, scores, CASCADE).prediction, alone.prediction()
    assert (one.long, one.shorts, one.yes_no) == (other.long, other.shorts, other.yes_no)


@given(seeds, st.randoms())
def test_only_blocks_that_were_read_are_answers(seed: int, random: object) -> None:
    read = blocks_of(seed)[:: 1 + seed % 3]
    example, scores = two_scores(seed, read)
    ranking = rank(example, scores, CASCADE)
    assert set(ranking.evidence.blocks.tolist()) <= set(read.tolist())
    alternatives = ranking.alternatives(100)
    spans = [example.candidates[i].span for i in read.tolist()]
    assert all(alternative.long in spans for alternative in alternatives)


@given(seeds, st.floats(-2, 2))
def test_the_block_score_of_the_ranker_is_one_more_feature(seed: int, weight: float) -> None:
    example, scores = two_scores(seed, blocks_of(seed))
    weights = replace(CASCADE.weights, ranker=weight)
    assert isinstance(weights, CascadeWeights)
    ranking = rank(example, scores, replace(CASCADE, weights=weights))
    first = rank(example, scores.ranker, RANKER).evidence
    known = dict(
        zip(first.blocks.tolist(), first.hypotheses.scores(RANKER.weights.evidence), strict=True)
    )
    lowest = min([0.0, *known.values()])
    ranked = [known.get(block, lowest) for block in ranking.evidence.blocks.tolist()]
    without = rank(example, scores, CASCADE).utility
    np.testing.assert_allclose(ranking.utility, without + weight * np.array(ranked), atol=1e-9)


@given(seeds, st.floats(-2, 2))
def test_a_reader_that_only_ranks_changes_places_with_the_first_model(
    seed: int, weight: float
) -> None:
    read = blocks_of(seed)[:: 1 + seed % 2]
    example, scores = two_scores(seed, read)
    types = np.full_like(scores.second.type_logits, 2 * IMPOSSIBLE)
    types[:, [AnswerType.UNKNOWN, AnswerType.LONG]] = 0
    ranks = replace(scores.second, type_logits=types)
    weights = replace(CASCADE.weights, ranker=weight)
    assert isinstance(weights, CascadeWeights)
    decision = replace(CASCADE, weights=weights)
    again = rank(example, replace(scores, second=ranks), decision)
    first = rank(example, CascadeScores(ranks, scores.ranker, read), decision)
    np.testing.assert_array_equal(again.utility, first.utility)
    assert again.prediction() == first.prediction()
    assert set(again.evidence.blocks.tolist()) <= set(read.tolist())


@given(seeds)
def test_the_weight_of_the_ranker_is_fitted_with_the_others(seed: int) -> None:
    example, scores = two_scores(seed, blocks_of(seed))
    choices = block_choices(
        replace(example, annotations=()), rank(example, scores, CASCADE).evidence
    )
    assert choices is not None and choices.features.shape[1] == 1 + len(
        CascadeWeights.BLOCK_FEATURES
    )
    assert not choices.features[-1, :-1].any()  # "no answer" has no block score


def test_fitting_starts_from_the_weights_of_a_single_model() -> None:
    expected = {**PRIOR_WEIGHTS.to_dict(), "ranker": 0.0}
    assert CASCADE_PRIOR_WEIGHTS.to_dict() == expected


def test_the_scores_of_a_cascade_need_the_decision_of_both_models() -> None:
    example, scores = two_scores(1, blocks_of(1))
    with pytest.raises(Error, match="give the decision of both"):
        rank(example, scores, DecisionConfig())
    with pytest.raises(Error, match="decision kisialiou ranks no blocks for a second model"):
        decide(example, scores, replace(CASCADE, rule="kisialiou"))


def test_a_decision_is_read_as_it_was_written() -> None:
    decision = replace(CASCADE, read_blocks=7, weights=replace(CASCADE.weights, ranker=0.25))
    values = decision.to_dict()
    assert values["ranker"]["weights"]["evidence"] == 0.25
    assert CascadeDecision.from_dict(values) == decision
    assert "ranker" not in DecisionConfig().to_dict()["weights"]
    with pytest.raises(ValueError, match="read_blocks must be at least 1, got 0"):
        replace(decision, read_blocks=0)


@pytest.mark.parametrize(
    ("ranker", "short", "expected"), [(0.0, 0.1, 0.4), (2.0, 0.1, 0.9), (-2.0, 1.5, 1.5)]
)
def test_evidence_of_both_models_changes_the_log_odds(
    ranker: float, short: float, expected: float
) -> None:
    weights = replace(CASCADE.weights, ranker=ranker, short_evidence=short)
    assert replace(CASCADE, weights=weights).evidence_weight == pytest.approx(expected)
