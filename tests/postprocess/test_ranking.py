"""The default decision against the sum over all hypotheses, one by one."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nq.config import DecisionConfig, RankingWeights
from nq.formats.pages import page_from_text, with_question
from nq.postprocess import position_prior
from nq.postprocess.ranking import Hypotheses, alternatives, blocks, choose, evidence, scaled
from nq.records import AnswerType, Candidate, Example, Span, WindowScores, YesNo
from tests.postprocess import synthetic_pages

seeds = st.integers(0, 2**32 - 1)
chance = settings(deadline=None, max_examples=100)
MAX_PIECES = 30
Said = tuple[int, AnswerType, Span | None]
"""Block, type, and the span if the type is short."""


def ratios(example: Example, scores: WindowScores) -> Iterator[tuple[int, Said, float]]:
    """Each window, what it may say, and the logarithm of the likelihood ratio."""
    kinds = [AnswerType.SHORT, AnswerType.LONG]
    if scores.type_logits.any():
        kinds += [AnswerType.YES, AnswerType.NO]
    for w in range(len(scores)):
        for i, start in enumerate(scores.start_doc[w].tolist()):
            for j, end in enumerate(scores.end_doc[w].tolist()):
                pieces = int(scores.end_pos[w, j] - scores.start_pos[w, i]) + 1
                block = block_of(example, start)
                if start < 0 or end < start or pieces < 1 or block < 0:
                    continue
                if block_of(example, end) != block:
                    continue
                score = float(scores.start_logit[w, i]) + float(scores.end_logit[w, j])
                score -= float(scores.cls_logit[w].sum(dtype=np.float64))
                for kind in kinds:
                    short = kind is AnswerType.SHORT
                    if short and pieces > MAX_PIECES:
                        continue
                    types = scores.type_logits[w]
                    gain = float(types[kind]) - float(types[AnswerType.UNKNOWN])
                    yield w, (block, kind, Span(start, end + 1) if short else None), score + gain


def hypotheses(example: Example, scores: WindowScores) -> dict[Said, float]:
    """What the page may be said to answer, each with the sum of its likelihood ratios."""
    total: dict[Said, float] = defaultdict(float)
    for _, said, ratio in ratios(example, scores):
        total[said] += math.exp(ratio)
    return total


def strengths(example: Example, scores: WindowScores, weight: float) -> dict[int, float]:
    """Of each block the highest sum of a window, each ratio to the power of ``weight``."""
    total: dict[tuple[int, int], float] = defaultdict(float)
    for window, (block, *_), ratio in ratios(example, scores):
        total[block, window] += math.exp(weight * ratio)
    return {
        block: max(value for (b, _), value in total.items() if b == block) for block, _ in total
    }


def block_of(example: Example, token: int) -> int:
    for index, candidate in enumerate(example.candidates):
        if candidate.top_level and candidate.span.start <= token < candidate.span.end:
            return index
    return -1


def page(seed: int, ties: bool = False) -> tuple[Example, WindowScores]:
    found = synthetic_pages.logits(seed, ties)
    return synthetic_pages.example(seed), synthetic_pages.window_scores(found, 8, text_only=True)


@chance
@given(seeds, st.booleans(), st.one_of(st.just(1.0), st.floats(0.01, 2)))
def test_blocks_and_options_are_weighed(seed: int, ties: bool, weight: float) -> None:
    example, scores = page(seed, ties)
    said, strong = hypotheses(example, scores), strengths(example, scores, weight)
    everything = 1 + sum(strong.values())
    weights = RankingWeights(evidence=weight)
    found = alternatives(example, scores, DecisionConfig(weights=weights), 100)
    assert len(found) == len(strong)
    for one in found:
        block = next(b for b in strong if example.candidates[b].span == one.long)
        likely = strong[block] / everything
        assert one.long_probability == pytest.approx(likely, abs=1e-6)
        mine = {key: value for key, value in said.items() if key[0] == block}
        answers = [value for key, value in mine.items() if key[1] is not AnswerType.LONG]
        share = max(answers) / sum(mine.values())
        assert one.short_probability == pytest.approx(likely * share, abs=1e-6)


@chance
@given(seeds)
def test_a_model_without_types_says_neither_yes_nor_no(seed: int) -> None:
    example, scores = page(seed)
    scores = dataclasses.replace(scores, type_logits=0 * scores.type_logits)
    said = hypotheses(example, scores)
    for one in alternatives(example, scores, DecisionConfig(), 100):
        block = next(b for b, *_ in said if example.candidates[b].span == one.long)
        spans = {span: value for (b, _, span), value in said.items() if b == block and span}
        assert one.yes_no is YesNo.NONE
        assert bool(one.shorts) == bool(spans)
        for span in one.shorts:
            assert spans[span] == pytest.approx(max(spans.values()), rel=1e-6)


@chance
@given(seeds, st.booleans())
def test_the_short_answer_lies_in_its_block(seed: int, ties: bool) -> None:
    example, scores = page(seed, ties)
    for one in alternatives(example, scores, DecisionConfig(), 100):
        assert all(one.long.contains(span) for span in one.shorts)
        yes_no = one.yes_no is not YesNo.NONE
        assert not (one.shorts and yes_no)
        assert one.shorts or yes_no or not scores.type_logits.any()
        assert 0 < one.short_probability <= one.long_probability < 1


@chance
@given(seeds, st.integers(1, 4))
def test_alternatives_come_best_first_and_the_choice_is_the_first(seed: int, limit: int) -> None:
    example, scores = page(seed)
    config = DecisionConfig()
    found = alternatives(example, scores, config, limit)
    likely = [one.long_probability for one in found]
    assert likely == sorted(likely, reverse=True) and len(found) <= limit
    assert found == alternatives(example, scores, config, 100)[:limit]
    prediction = choose(example, scores, config)
    if found:
        assert (prediction.long, prediction.shorts) == (found[0].long, found[0].shorts)
        assert prediction.long_score == found[0].long_probability


@chance
@given(seeds, st.floats(0, 1), st.floats(0, 1))
def test_below_a_threshold_nothing_is_said(seed: int, long: float, short: float) -> None:
    example, scores = page(seed)
    free = choose(example, scores, DecisionConfig())
    held = choose(example, scores, DecisionConfig(long_threshold=long, short_threshold=short))
    assert held.long == (free.long if free.long_score >= long else None)
    assert held.shorts == (free.shorts if free.short_score >= short else ())
    assert (held.long_score, held.short_score) == (free.long_score, free.short_score)


@pytest.mark.parametrize(
    ("name", "block"), [("table", 1), ("list", 2), ("overlap", 3), ("place", 3), ("null", None)]
)
def test_a_weight_moves_the_choice_its_way(
    name: str, block: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(position_prior, "WHOLE", 4)
    tags = ["<P>", "<Table>", "<Ul>", "<P>"]
    tokens = [
        word for i, tag in enumerate(tags) for word in (tag, "one", "who" if i == 3 else "two")
    ]
    candidates = [Candidate(Span(3 * i, 3 * i + 3), True) for i in range(4)]
    example = Example(1, "who", tokens, [t.startswith("<") for t in tokens], candidates)
    doc = np.array([[-1, *(i for i, t in enumerate(tokens) if not t.startswith("<"))]])
    flat = synthetic_pages.Logits(np.zeros((1, 9)), np.zeros((1, 9)), np.zeros((1, 5)), doc)
    scores = synthetic_pages.window_scores(flat, 8, text_only=True)
    weights = RankingWeights(**{name: 20.0})
    config = DecisionConfig(weights=weights, long_threshold=0.5)
    wanted = None if block is None else candidates[block].span
    assert choose(example, scores, config).long == wanted


@given(st.floats(0, 1), st.floats(0.01, 5), st.floats(-5, 5))
def test_scaling_keeps_order_and_range(p: float, scale: float, shift: float) -> None:
    assert 0 <= scaled(p, scale, shift) <= 1
    assert scaled(p, scale, shift) <= scaled(min(1.0, p + 0.1), scale, shift)
    assert scaled(p, 1.0, 0.0) == pytest.approx(p, abs=1e-8)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 3))
def test_the_slope_is_that_of_what_is_said(seed: int, weight: float) -> None:
    draw = np.random.default_rng(seed)
    choice = np.sort(np.append(np.arange(4), draw.integers(0, 4, 3)))
    reading = np.sort(np.append(np.arange(7), draw.integers(0, 7, 5)))
    found = Hypotheses(draw.normal(0, 3, len(reading)), reading, choice)
    step = 1e-6
    around = (found.said(weight + step) - found.said(weight - step)) / (2 * step)
    assert found.said_and_slope(weight)[1] == pytest.approx(around, abs=1e-5)


def test_evidence_of_no_window_is_empty() -> None:
    example = synthetic_pages.example(1)
    scores = synthetic_pages.window_scores(
        synthetic_pages.logits(1, False, n_windows=0), 8, text_only=True
    )
    assert len(evidence(example, scores, MAX_PIECES).blocks) == 0
    assert alternatives(example, scores, DecisionConfig(), 3) == ()


def test_what_stands_below_an_article_is_no_block() -> None:
    texts = ["lakes are deep", "^ Jump up to : Lakes", "Jump up ^ Lakes", "Jump to : lakes"]
    page = page_from_text("\n\n".join([*texts, "This page was last edited on 1 May 2018"]))
    example = with_question(page, "how deep")
    held, starts = blocks(example), [candidate.span.start for candidate in example.candidates]
    assert [int(held[start]) for start in starts] == [0, -1, -1, 3, -1]
