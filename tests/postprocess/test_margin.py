"""Tests that no change of the logits below the decision margin changes the decision."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.config import DecisionConfig
from nq.postprocess.ranking import decision_margin, log_odds, rank
from nq.records import Example, WindowScores
from tests.postprocess import synthetic_pages

LOGITS = ("start_logit", "end_logit", "cls_logit", "type_logits")
LOGITS_BETWEEN_HYPOTHESES = 12  # start, end, two of [CLS] and two types, of each of two
seeds = st.integers(0, 2**32 - 1)
thresholds = st.floats(0.01, 0.99)


def margin(example: Example, scores: WindowScores, config: DecisionConfig) -> float:
    return decision_margin(rank(example, scores, config))


def with_noise(scores: WindowScores, size: float, seed: int) -> WindowScores:
    """Returns the scores with uniform noise of at most ``size`` on every logit."""
    draw = np.random.default_rng(seed)
    logits = {name: getattr(scores, name) for name in LOGITS}
    noisy = {name: x + draw.uniform(-size, size, x.shape) for name, x in logits.items()}
    return dataclasses.replace(scores, **noisy)


def answer(example: Example, scores: WindowScores, config: DecisionConfig) -> object:
    prediction = rank(example, scores, config).prediction()
    return prediction.long, prediction.shorts, prediction.yes_no


@given(seeds, seeds, thresholds, thresholds, st.floats(1e-4, 1))
def test_noise_below_the_margin_keeps_the_answer(
    seed: int, noise_seed: int, long: float, short: float, most: float
) -> None:
    example, scores = synthetic_pages.page(seed)
    config = DecisionConfig(long_threshold=long, short_threshold=short)
    size = min(most, 0.99 * margin(example, scores, config) / LOGITS_BETWEEN_HYPOTHESES)
    noisy = with_noise(scores, size, noise_seed)
    assert answer(example, noisy, config) == answer(example, scores, config)


def test_noise_far_above_the_margin_changes_answers() -> None:
    """Shows that the noise in the test above would change answers if it were larger."""
    changed = 0
    for seed in range(40):
        example, scores = synthetic_pages.page(seed)
        config = DecisionConfig(long_threshold=0.5, short_threshold=0.5)
        noisy = with_noise(scores, 3.0, seed)
        changed += answer(example, noisy, config) != answer(example, scores, config)
    assert changed > 5


def test_the_margin_counts_another_block_that_could_give_its_short_answer() -> None:
    example, scores = synthetic_pages.page(74190557)
    config = DecisionConfig(long_threshold=0.75, short_threshold=0.5)
    best, other = rank(example, scores, config).alternatives(2)
    assert best.long_probability < 0.75 and best.short_probability < 0.2
    assert 0.4 < other.short_probability < 0.5
    assert margin(example, scores, config) == pytest.approx(
        log_odds(0.5) - log_odds(other.short_probability)
    )


def test_the_margin_of_a_page_without_evidence_is_infinite() -> None:
    example, scores = synthetic_pages.page(3)
    assert margin(example, scores, DecisionConfig()) < math.inf
    empty = dataclasses.replace(scores, start_doc=np.full_like(scores.start_doc, -1))
    assert margin(example, empty, DecisionConfig()) == math.inf
