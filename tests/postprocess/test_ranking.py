"""Tests of the default decision, of one model and of two, against all hypotheses, one by one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.config import CascadeDecision, CascadeWeights, DecisionConfig, RankingWeights
from nq.evaluation.official import places
from nq.evaluation.tuning import accepted
from nq.postprocess.blocks import Blocks
from nq.postprocess.decision import decide
from nq.postprocess.ranking import decision_margin, log_odds, rank
from nq.records import (
    AnswerType,
    Candidate,
    CascadeScores,
    Example,
    IntArray,
    Span,
    YesNo,
)
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
    excluded = {AnswerType.LONG}
    for alternative in alternatives:
        block = next(b for b in blocks if example.candidates[b].span == alternative.long)
        probability = blocks[block] / total
        assert alternative.long_probability == pytest.approx(probability, abs=1e-6)
        options = {key: odds for key, odds in answers.items() if key[0] == block}
        shorts = [odds for key, odds in options.items() if key[1] not in excluded]
        share = max(shorts, default=0.0) / sum(options.values())
        assert alternative.short_probability == pytest.approx(probability * share, abs=1e-6)
        if alternatives[0].yes_no is YesNo.NONE:  # all others are words too
            excluded |= {AnswerType.YES, AnswerType.NO}


@given(seeds)
def test_yes_and_no_that_are_not_told_apart_are_one_answer_without_words(seed: int) -> None:
    example, scores = synthetic_pages.page(seed)
    told = rank(example, scores, DecisionConfig())
    untold = rank(example, scores, DecisionConfig(says_yes_no=False))
    for row in range(len(told.evidence.blocks)):
        options, before = told.options(row)
        after = untold.alternative(row)
        is_word = np.isin(options.types, (AnswerType.YES, AnswerType.NO))
        spans = before[options.types == AnswerType.SHORT]
        both = float(before[is_word].sum())
        assert after.asks_yes_no == (both > spans.max(initial=0.0))
        assert after.yes_no is YesNo.NONE and bool(after.shorts) != after.asks_yes_no
        share = max(both, float(spans.max(initial=0.0)))
        expected = float(told.probabilities[row]) * share
        assert after.short_probability == pytest.approx(expected, abs=1e-6)
    assert untold.prediction().yes_no is YesNo.NONE


def test_a_question_with_a_question_word_is_not_answered_by_yes_or_no() -> None:
    example, scores = synthetic_pages.page(2)
    types = np.array(scores.type_logits)
    types[:, AnswerType.YES] += 50
    certain = replace(scores, type_logits=types)
    assert rank(example, certain, DecisionConfig()).alternative(0).yes_no is YesNo.YES
    other = replace(example, question="how much was he paid")
    assert rank(other, certain, DecisionConfig()).alternative(0).yes_no is YesNo.NONE


def one_block(
    tokens: str, starts: dict[int, float], ends: dict[int, float]
) -> tuple[Example, synthetic_pages.Logits]:
    """Returns a page of one block, with start and end logits by word, the latter behind it."""
    words = tokens.split()
    is_html, block = [word[0] == "<" for word in words], Candidate(Span(0, len(words)), True)
    start, end = np.zeros((2, 1, len(words) + 1))
    start[0, np.array(list(starts)) + 1] = list(starts.values())
    end[0, list(ends)] = list(ends.values())
    doc = np.array([[-1, *range(len(words))]])
    example = Example(1, "who", words, is_html, [block])
    return example, synthetic_pages.Logits(start, end, np.zeros((1, 5)), doc)


@pytest.mark.parametrize(
    ("tokens", "span", "expected"),
    [
        ("`` Mirror Image '' .", (1, 4), (0, 4)),
        ("of one who hopes '' .", (1, 5), (1, 4)),
        ('the " Spirit Way " is', (1, 4), (1, 5)),
        ("Act ( FOPA ) , all", (2, 4), (1, 4)),
        ('a " b', (1, 2), (1, 2)),
    ],
)
def test_quotes_and_brackets_at_the_ends_of_a_span_are_in_pairs(
    tokens: str, span: tuple[int, int], expected: tuple[int, int]
) -> None:
    example, logits = one_block(tokens, {span[0]: 20}, {span[1]: 20})
    scores = synthetic_pages.window_scores(logits, 2, text_only=True)
    alternative = rank(example, scores, DecisionConfig()).alternative(0)
    assert alternative.shorts == (Span(*expected),)


@pytest.mark.parametrize(
    ("tokens", "spans"),
    [
        ("<Tr> <Td> 18,880 </Td> <Td> 1,207 </Td> </Tr>", [(2, 3), (5, 6)]),
        ("It is written in C. PyPy is fast", [(4, 5), (5, 6)]),
    ],
)
def test_no_short_answer_goes_over_the_end_of_a_cell_or_sentence(
    tokens: str, spans: list[tuple[int, int]]
) -> None:
    first, second = spans
    example, logits = one_block(tokens, {first[0]: 8, second[0]: 7}, {first[1]: 5, second[1]: 8})
    scores = synthetic_pages.window_scores(logits, 2, text_only=True)
    ranking = rank(example, scores, DecisionConfig())
    options = ranking.evidence.options(0)
    assert options.spans[options.evidence.argmax()].tolist() == [first[0], second[1] - 1]
    assert ranking.alternative(0).shorts == (Span(*second),)
    assert {span for span, _ in ranking.short_spans(9)} == {Span(*first), Span(*second)}
    start, end = logits.start - 9 * (logits.doc == second[0]), logits.end - 9 * (logits.doc < 5)
    over = synthetic_pages.window_scores(replace(logits, start=start, end=end), 1, text_only=True)
    only = rank(example, over, DecisionConfig()).alternative(0)
    assert (only.long, only.shorts) == (example.candidates[0].span, ())


@given(seeds, st.floats(0, 1), st.floats(0, 1))
def test_a_short_answer_is_given_where_both_scores_reach_their_thresholds(
    seed: int, long: float, short: float
) -> None:
    example, scores = synthetic_pages.page(seed)
    config = DecisionConfig(long_threshold=long, short_threshold=short)
    every = rank(example, scores, DecisionConfig()).prediction()
    answer = rank(example, scores, config).prediction()
    has_long = every.long_score >= long
    has_short = has_long and every.short_score >= short
    expected = replace(every, long=every.long if has_long else None)
    if not has_short:
        expected = replace(expected, shorts=(), yes_no=YesNo.NONE)
    assert answer == expected
    assert accepted(every, config) == answer


# --- the decision margin

LOGITS = ("start_logit", "end_logit", "cls_logit", "type_logits")
LOGITS_BETWEEN_HYPOTHESES = 12  # start, end, two of [CLS] and two types, of each of two
thresholds = st.floats(0.01, 0.99)


@given(seeds, seeds, thresholds, thresholds, st.floats(1e-4, 1))
def test_noise_below_the_margin_keeps_the_answer(
    seed: int, noise_seed: int, long: float, short: float, most: float
) -> None:
    example, scores = synthetic_pages.page(seed)
    config = DecisionConfig(long_threshold=long, short_threshold=short)
    ranking, draw = rank(example, scores, config), np.random.default_rng(noise_seed)
    size = min(most, 0.99 * decision_margin(ranking) / LOGITS_BETWEEN_HYPOTHESES)
    logits = {name: getattr(scores, name) for name in LOGITS}
    noisy = {name: x + draw.uniform(-size, size, x.shape) for name, x in logits.items()}
    other = rank(example, replace(scores, **noisy), config).prediction()
    assert places(ranking.prediction()) == places(other)


def test_the_margin_of_a_block_that_is_not_given_is_that_to_its_threshold() -> None:
    """Then the short answer and the other blocks have no part in the decision."""
    example, scores = synthetic_pages.page(2)
    best = float(rank(example, scores, DecisionConfig()).probabilities.max())
    for short_threshold in (0.0, 0.5, 1.0):
        config = DecisionConfig(long_threshold=(1 + best) / 2, short_threshold=short_threshold)
        margin = log_odds(config.long_threshold) - log_odds(best)
        assert decision_margin(rank(example, scores, config)) == pytest.approx(margin)


# --- two models

WEIGHTS = RankingWeights(evidence=0.4, bm25=0.7, null=1.5, short_evidence=0.8)
FIRST = DecisionConfig(weights=RankingWeights(evidence=0.25, bm25=0.1))
CASCADE = CascadeDecision(
    long_threshold=0.2, weights=CascadeWeights(**WEIGHTS.to_dict()), first=FIRST
)


def with_weight(block_score: float) -> CascadeDecision:
    return replace(CASCADE, weights=CascadeWeights(**WEIGHTS.to_dict(), block_score=block_score))


def two_scores(seed: int, step: int = 1) -> tuple[Example, CascadeScores]:
    """Returns a random page with the scores of two models; the reader read each step-th block."""
    example, first = synthetic_pages.page(seed)
    _, second = synthetic_pages.page(seed + 1)
    read: IntArray = Blocks.of(example).candidates[::step]
    return example, CascadeScores(first, second, read)


@given(seeds)
def test_a_reader_of_all_blocks_decides_alone_without_block_scores(seed: int) -> None:
    example, scores = two_scores(seed)
    alone = rank(
        example, scores.reader, replace(DecisionConfig(weights=WEIGHTS), long_threshold=0.2)
    )
    both = rank(example, scores, CASCADE)
    np.testing.assert_array_equal(both.evidence.blocks, alone.evidence.blocks)
    np.testing.assert_allclose(both.utility, alone.utility, rtol=1e-12)
    given = decide(example, scores, CASCADE).prediction
    assert places(given) == places(alone.prediction())


@given(seeds, st.integers(1, 3), st.floats(-2, 2))
def test_the_block_score_of_the_ranker_is_one_more_feature_of_the_blocks_read(
    seed: int, step: int, weight: float
) -> None:
    example, scores = two_scores(seed, step)
    ranking = rank(example, scores, with_weight(weight))
    assert set(ranking.evidence.blocks.tolist()) <= set(scores.read.tolist())
    first = rank(example, scores.ranker, FIRST).evidence
    block_scores = FIRST.weights.evidence * first.block_scores()
    by_block = dict(zip(first.blocks.tolist(), block_scores, strict=True))
    lowest = min([0.0, *by_block.values()])
    ranked = [by_block.get(block, lowest) for block in ranking.evidence.blocks.tolist()]
    without = rank(example, scores, CASCADE).utility
    np.testing.assert_allclose(ranking.utility, without + weight * np.array(ranked), atol=1e-9)
