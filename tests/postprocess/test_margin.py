"""Closeness: no smaller change of the logits makes the answer another one."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nq.config import DecisionConfig
from nq.postprocess.margin import closeness
from nq.postprocess.ranking import alternatives, choose, log_odds
from nq.records import Candidate, Example, Span, WindowScores
from tests.postprocess import synthetic_pages

LOGITS = ("start_logit", "end_logit", "cls_logit", "type_logits")
LOGITS_BETWEEN_HYPOTHESES = 12  # start, end, two of [CLS] and two types, of each of two
seeds = st.integers(0, 2**32 - 1)
thresholds = st.floats(0.01, 0.99)


def page(seed: int) -> tuple[Example, WindowScores]:
    return synthetic_pages.example(seed), synthetic_pages.window_scores(
        synthetic_pages.logits(seed, False), 8, text_only=True
    )


def shaken(scores: WindowScores, by: float, seed: int) -> WindowScores:
    draw = np.random.default_rng(seed)
    moved = {
        name: getattr(scores, name) + draw.uniform(-by, by, getattr(scores, name).shape)
        for name in LOGITS
    }
    return dataclasses.replace(scores, **moved)


def said(example: Example, scores: WindowScores, config: DecisionConfig) -> object:
    found = choose(example, scores, config)
    return found.long, found.shorts, found.yes_no


@settings(deadline=None, max_examples=300)
@given(seeds, seeds, thresholds, thresholds, st.floats(1e-4, 1))
def test_what_changes_less_answers_the_same(
    seed: int, other: int, long: float, short: float, change: float
) -> None:
    example, scores = page(seed)
    config = DecisionConfig(long_threshold=long, short_threshold=short)
    by = min(change, 0.99 * closeness(example, scores, config) / LOGITS_BETWEEN_HYPOTHESES)
    moved = shaken(scores, by, other)
    assert said(example, moved, config) == said(example, scores, config)


@settings(deadline=None, max_examples=100)
@given(seeds, st.booleans())
def test_at_a_threshold_nothing_is_closer(seed: int, of_long: bool) -> None:
    example, scores = page(seed)
    best = alternatives(example, scores, DecisionConfig(), 1)
    if best:
        long, short = best[0].long_probability, best[0].short_probability
        at = (
            DecisionConfig(long_threshold=long)
            if of_long
            else DecisionConfig(short_threshold=short)
        )
        assert closeness(example, scores, at) < 1e-6


def test_of_two_equal_blocks_each_is_as_good() -> None:
    tokens = ["<P>", "one", "two"] * 2
    candidates = [Candidate(Span(0, 3), True), Candidate(Span(3, 6), True)]
    example = Example(1, "who", tokens, [token == "<P>" for token in tokens], candidates)
    flat = synthetic_pages.Logits(
        np.zeros((1, 5)), np.zeros((1, 5)), np.zeros((1, 5)), np.array([[-1, 1, 2, 4, 5]])
    )
    scores = synthetic_pages.window_scores(flat, 4, text_only=True)
    assert closeness(example, scores, DecisionConfig()) == 0


def test_another_block_may_have_an_answer_to_give() -> None:
    example, scores = page(74190557)
    config = DecisionConfig(long_threshold=0.75, short_threshold=0.5)
    best, other = alternatives(example, scores, config, 2)
    assert best.long_probability < 0.75 and best.short_probability < 0.2
    assert 0.4 < other.short_probability < 0.5
    assert closeness(example, scores, config) == pytest.approx(
        log_odds(0.5) - log_odds(other.short_probability)
    )


def test_a_page_with_nothing_to_say_is_never_close() -> None:
    example, scores = page(3)
    nowhere = dataclasses.replace(
        scores, start_doc=np.full_like(scores.start_doc, -1), end_doc=scores.end_doc
    )
    assert closeness(example, nowhere, DecisionConfig()) == math.inf
