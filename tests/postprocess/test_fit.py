"""What annotated pages teach the decision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nq.config import RankingWeights
from nq.evaluation import labels, nq_eval
from nq.formats.predictions import encode_prediction
from nq.postprocess.fit import (
    BLOCK,
    OPTION,
    Lesson,
    block_lesson,
    fit,
    option_lesson,
    right_options,
    scaling,
)
from nq.postprocess.position_prior import USUAL
from nq.postprocess.ranking import Hypotheses, evidence, scaled
from nq.records import Annotation, AnswerType, Example, Prediction, Span, YesNo
from tests.postprocess import synthetic_pages

seeds = st.integers(0, 2**32 - 1)
_WORDS = {AnswerType.YES: YesNo.YES, AnswerType.NO: YesNo.NO}


def annotated(seed: int) -> Example:
    """A random page with up to five annotators, who often agree."""
    draw, example = np.random.default_rng(seed), synthetic_pages.example(seed)
    annotations = []
    for _ in range(draw.integers(1, 6)):
        full = [i for i, c in enumerate(example.candidates) if c.span.start < c.span.end][:2]
        if not full or draw.random() < 0.3:
            annotations.append(Annotation(None, None, (), YesNo.NONE))
            continue
        index = int(draw.choice(full))
        block = example.candidates[index].span
        start = int(draw.integers(block.start, block.end + 1))
        spans = [Span(start, start + int(draw.integers(1, 3))) for _ in range(draw.integers(0, 3))]
        word = YesNo.NONE if spans else YesNo(draw.choice(list(YesNo)))
        annotations.append(Annotation(block, index, tuple(spans), word))
    return replace(example, annotations=tuple(annotations))


def is_right(example: Example, prediction: Prediction) -> tuple[bool, bool]:
    """Whether the evaluation takes the long and the short answer."""
    gold: dict[labels.ExampleId, list[labels.Label]] = {
        0: [
            labels.Label(span(a.long), tuple(span(s) for s in a.shorts), a.yes_no.lower())
            for a in example.annotations or ()
        ]
    }
    mine: dict[labels.ExampleId, labels.Label] = {
        0: labels.prediction_label(encode_prediction(prediction))
    }
    long, short = nq_eval.decisions(gold, mine, one_annotator=True)
    return long[0].correct, short[0].correct


def span(found: Span | None) -> labels.Span:
    return labels.Span(-1, -1, found.start, found.end) if found else labels.Span()


@settings(deadline=None, max_examples=200)
@given(seeds)
def test_right_is_what_the_evaluation_takes(seed: int) -> None:
    example = annotated(seed)
    scores = synthetic_pages.window_scores(synthetic_pages.logits(seed, True), 8, text_only=True)
    found = evidence(example, scores, 30)
    lesson = block_lesson(example, found)
    for row, block in enumerate(found.blocks.tolist()):
        long = example.candidates[block].span
        right, _ = is_right(example, Prediction(1, long))
        assert right == (lesson is not None and bool(lesson.right[row]))
        options = found.options(row)
        for i, good in enumerate(right_options(example, options).tolist()):
            kind = AnswerType(int(options.kinds[i]))
            if kind is AnswerType.LONG:
                continue
            start, end = options.spans[i].tolist()
            said = Prediction(
                1,
                shorts=(Span(start, end + 1),) if kind is AnswerType.SHORT else (),
                yes_no=_WORDS.get(kind, YesNo.NONE),
            )
            assert good == is_right(example, said)[1]


@settings(deadline=None, max_examples=100)
@given(seeds)
def test_a_lesson_has_something_right_in_it(seed: int) -> None:
    example = annotated(seed)
    scores = synthetic_pages.window_scores(synthetic_pages.logits(seed, False), 8, text_only=True)
    found = evidence(example, scores, 30)
    for lesson in (block_lesson(example, found), option_lesson(example, found)):
        assert lesson is None or (lesson.right.any() and len(lesson.right) == len(lesson.features))


def lessons(names: tuple[str, ...], truth: RankingWeights, n: int) -> list[Lesson]:
    """Pages on which what is right was drawn with the probabilities of ``truth``."""
    draw = np.random.default_rng(7)
    counted, *weights = (getattr(truth, name) for name in names)
    found = []
    for _ in range(n):
        choice = np.sort(np.append(np.arange(6), draw.integers(0, 6, 4)))
        reading = np.sort(np.append(np.arange(10), draw.integers(0, 10, 6)))
        said = Hypotheses(draw.normal(0, 2, len(reading)), reading, choice)
        features = draw.normal(0, 1.5, (6, len(weights)))
        says = [np.exp(counted * said.evidence[reading == r]).sum() for r in range(10)]
        most = [max(s for s, c in zip(says, choice, strict=True) if c == one) for one in range(6)]
        powers = most * np.exp(features @ weights)
        right = np.arange(6) == draw.choice(6, p=powers / powers.sum())
        found.append(Lesson(said, features, right))
    return found


def test_fitting_finds_the_weights_behind_the_data() -> None:
    truth = RankingWeights(
        evidence=0.6, overlap=0.8, table=-1.0, list=0.3, place=-0.5, null=1.5,
        short_evidence=0.7, short_length=-0.4, whole=0.5, yes=-0.6, no=0.2,
    )  # fmt: skip
    found = fit(lessons(BLOCK, truth, 3000), lessons(OPTION, truth, 3000))
    for name in (*BLOCK, *OPTION):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), abs=0.15), name


def test_without_lessons_nothing_is_learnt() -> None:
    assert fit([], []) == USUAL


def test_hardly_any_evidence_is_more_than_expected() -> None:
    seen = lessons(BLOCK, RankingWeights(), 500)
    found = fit(seen, [])
    said = [lesson.hypotheses.said(found.evidence)[:-1] for lesson in seen]
    evidence, most = np.concatenate(said), found.most_evidence
    assert 0 < (evidence > most).mean() <= 0.0015


def test_what_the_pages_do_not_show_stays_as_expected() -> None:
    truth = RankingWeights(evidence=0.6, overlap=0.8, null=1.5)
    seen = lessons(BLOCK, truth, 500)
    unseen = [BLOCK.index(name) - 1 for name in ("table", "list", "place")]
    for lesson in seen:
        lesson.features[:, unseen] = 0
    found = fit(seen, [])
    assert (found.table, found.list, found.place) == (USUAL.table, USUAL.list, USUAL.place)


def test_an_impossible_choice_spoils_nothing() -> None:
    said = Hypotheses(np.array([1.0, -np.inf]), np.arange(2), np.arange(2))
    found = fit([], [Lesson(said, np.zeros((2, 4)), np.array([True, False]))])
    assert all(np.isfinite(getattr(found, name)) for name in OPTION)


def test_scaling_makes_probabilities_mean_what_they_say() -> None:
    draw = np.random.default_rng(3)
    truth = draw.random(5000)
    right = (draw.random(5000) < truth).tolist()
    too_sure = [scaled(p, 3.0, 1.0) for p in truth.tolist()]
    scale, shift = scaling(too_sure, right)
    again = [scaled(p, scale, shift) for p in too_sure]
    assert np.abs(np.array(again) - truth).max() < 0.05
