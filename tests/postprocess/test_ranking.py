"""Tests of the default decision against the sum over all hypotheses, one by one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.config import DecisionConfig, RankingWeights
from nq.postprocess.blocks import Blocks
from nq.postprocess.ranking import calibrated, log_odds, rank
from nq.records import AnswerType, Candidate, Example, Span, YesNo
from tests.postprocess import synthetic_pages
from tests.postprocess.slow_evidence import answer_odds, block_odds

seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.booleans(), st.one_of(st.just(1.0), st.floats(0.01, 2)))
def test_probabilities_of_blocks_and_options_are_shares_of_the_odds(
    seed: int, ties: bool, weight: float
) -> None:
    example, scores = synthetic_pages.page(seed, ties)
    answers, blocks = answer_odds(example, scores), block_odds(example, scores, weight)
    total = 1 + sum(blocks.values())
    config = DecisionConfig(weights=RankingWeights(evidence=weight))
    alternatives = rank(example, scores, config).alternatives(100)
    assert len(alternatives) == len(blocks)
    for alternative in alternatives:
        block = next(b for b in blocks if example.candidates[b].span == alternative.long)
        probability = blocks[block] / total
        assert alternative.long_probability == pytest.approx(probability, abs=1e-6)
        options = {key: odds for key, odds in answers.items() if key[0] == block}
        shorts = [odds for key, odds in options.items() if key[1] is not AnswerType.LONG]
        share = max(shorts) / sum(options.values())
        assert alternative.short_probability == pytest.approx(probability * share, abs=1e-6)


@given(seeds)
def test_a_model_without_a_type_head_answers_neither_yes_nor_no(seed: int) -> None:
    example, scores = synthetic_pages.page(seed)
    scores = dataclasses.replace(scores, type_logits=0 * scores.type_logits)
    answers = answer_odds(example, scores)
    for alternative in rank(example, scores, DecisionConfig()).alternatives(100):
        block = next(b for b, *_ in answers if example.candidates[b].span == alternative.long)
        spans = {span: odds for (b, _, span), odds in answers.items() if b == block and span}
        assert alternative.yes_no is YesNo.NONE
        assert bool(alternative.shorts) == bool(spans)
        for span in alternative.shorts:
            assert spans[span] == pytest.approx(max(spans.values()), rel=1e-6)


@given(seeds, st.booleans())
def test_a_short_answer_is_inside_its_block_and_excludes_yes_and_no(seed: int, ties: bool) -> None:
    example, scores = synthetic_pages.page(seed, ties)
    for alternative in rank(example, scores, DecisionConfig()).alternatives(100):
        assert all(alternative.long.contains(span) for span in alternative.shorts)
        yes_no = alternative.yes_no is not YesNo.NONE
        assert not (alternative.shorts and yes_no)
        assert alternative.shorts or yes_no or not scores.type_logits.any()
        assert 0 < alternative.short_probability <= alternative.long_probability < 1


@given(seeds, st.integers(1, 4))
def test_alternatives_are_best_first_and_the_prediction_is_the_first(seed: int, limit: int) -> None:
    ranking = rank(*synthetic_pages.page(seed), DecisionConfig())
    alternatives = ranking.alternatives(limit)
    probabilities = [alternative.long_probability for alternative in alternatives]
    assert probabilities == sorted(probabilities, reverse=True) and len(alternatives) <= limit
    assert alternatives == ranking.alternatives(100)[:limit]
    prediction = ranking.prediction()
    if alternatives:
        best = alternatives[0]
        assert (prediction.long, prediction.shorts) == (best.long, best.shorts)
        assert prediction.yes_no is best.yes_no
        assert prediction.long_score == best.long_probability
        assert prediction.short_score == best.short_probability


@given(seeds, st.floats(0, 1), st.floats(0, 1))
def test_an_answer_below_its_threshold_is_null_and_keeps_its_score(
    seed: int, long: float, short: float
) -> None:
    example, scores = synthetic_pages.page(seed)
    free = rank(example, scores, DecisionConfig()).prediction()
    config = DecisionConfig(long_threshold=long, short_threshold=short)
    prediction = rank(example, scores, config).prediction()
    assert prediction.long == (free.long if free.long_score >= long else None)
    given_short = free.short_score >= short
    assert prediction.shorts == (free.shorts if given_short else ())
    assert prediction.yes_no is (free.yes_no if given_short else YesNo.NONE)
    assert (prediction.long_score, prediction.short_score) == (free.long_score, free.short_score)


@pytest.mark.parametrize(
    ("name", "block"), [("table", 1), ("list", 2), ("bm25", 3), ("position", 3), ("null", None)]
)
def test_a_large_weight_of_a_feature_decides(name: str, block: int | None) -> None:
    tags = ["<P>", "<Table>", "<Ul>", "<P>"]
    tokens = [
        word for i, tag in enumerate(tags) for word in (tag, "one", "who" if i == 3 else "two")
    ]
    candidates = [Candidate(Span(3 * i, 3 * i + 3), True) for i in range(4)]
    example = Example(1, "who", tokens, [t.startswith("<") for t in tokens], candidates)
    doc = np.array([[-1, *(i for i, t in enumerate(tokens) if not t.startswith("<"))]])
    flat = synthetic_pages.Logits(np.zeros((1, 9)), np.zeros((1, 9)), np.zeros((1, 5)), doc)
    scores = synthetic_pages.window_scores(flat, 8, text_only=True)
    config = DecisionConfig(weights=RankingWeights(**{name: 20.0}), long_threshold=0.5)
    prediction = rank(example, scores, config, Blocks.of(example, min_blocks=4)).prediction()
    assert prediction.long == (None if block is None else candidates[block].span)


def test_an_example_without_windows_has_no_answer() -> None:
    logits = synthetic_pages.logits(1, False, n_windows=0)
    scores = synthetic_pages.window_scores(logits, 8, text_only=True)
    ranking = rank(synthetic_pages.example(1), scores, DecisionConfig())
    assert ranking.alternatives(3) == () and not ranking.prediction().answered


@given(st.floats(0, 1), st.floats(0.01, 5), st.floats(-5, 5))
def test_calibration_is_monotonic_and_gives_probabilities(
    p: float, scale: float, shift: float
) -> None:
    assert 0 <= calibrated(p, scale, shift) <= 1
    assert calibrated(p, scale, shift) <= calibrated(min(1.0, p + 0.1), scale, shift)
    assert calibrated(p, 1.0, 0.0) == pytest.approx(p, abs=1e-8)


@given(seeds)
def test_yes_and_no_are_calibrated_apart_from_other_answers(seed: int) -> None:
    example, scores = synthetic_pages.page(seed)
    weights = RankingWeights(short_scale=0.5, yes_no_scale=2.0, yes_no_shift=1.0)
    plain = rank(example, scores, DecisionConfig()).alternatives(100)
    changed = rank(example, scores, DecisionConfig(weights=weights)).alternatives(100)
    for before, after in zip(plain, changed, strict=True):
        scale, shift = (0.5, 0.0) if after.yes_no is YesNo.NONE else (2.0, 1.0)
        expected = calibrated(before.short_probability, scale, shift)
        assert after.short_probability == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_log_odds_of_certainty_are_finite(p: float) -> None:
    assert abs(log_odds(p)) == pytest.approx(np.log(1e9), rel=1e-6)
