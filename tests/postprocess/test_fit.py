"""Tests of the weights that are fitted to annotated pages."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.config import RankingWeights
from nq.evaluation.evaluate import example_labels
from nq.evaluation.labels import prediction_label
from nq.evaluation.nq_eval import decisions_of_one
from nq.formats.outputs import encode_prediction
from nq.postprocess.evidence import gather_evidence
from nq.postprocess.fit import (
    OPTION_WEIGHTS,
    ChoiceSet,
    block_choices,
    fit_few_blocks,
    fit_weights,
    right_options,
)
from nq.records import Annotation, AnswerType, Example, Prediction, Span, YesNo
from tests.postprocess import synthetic_pages

BLOCK_WEIGHTS = ("evidence", *RankingWeights.BLOCK_FEATURES, "null")
seeds = st.integers(0, 2**32 - 1)
WORDS = (YesNo.YES, YesNo.NO)


def annotated(seed: int) -> Example:
    """Returns a random page with up to five annotators, who often agree."""
    draw, example = np.random.default_rng(seed), synthetic_pages.example(seed)
    annotations = []
    for _ in range(draw.integers(1, 6)):
        nonempty = [i for i, c in enumerate(example.candidates) if c.span.start < c.span.end]
        if not nonempty or draw.random() < 0.3:
            annotations.append(Annotation(None, None, (), YesNo.NONE))
            continue
        index = int(draw.choice(nonempty[:2]))
        block = example.candidates[index].span
        start = int(draw.integers(block.start, block.end + 1))
        spans = [Span(start, start + int(draw.integers(1, 3))) for _ in range(draw.integers(0, 3))]
        yes_no = YesNo.NONE if spans else YesNo(draw.choice(list(YesNo)))
        annotations.append(Annotation(block, index, tuple(spans), yes_no))
    return replace(example, annotations=tuple(annotations))


def is_right(example: Example, prediction: Prediction) -> tuple[bool, bool]:
    """Returns whether the evaluation counts the long and the short answer as right."""
    label = prediction_label(encode_prediction(prediction))
    long, short = decisions_of_one(example_labels(example), label)
    return long.correct, short.correct


@given(seeds)
def test_right_choices_are_those_that_the_evaluation_counts_as_right(seed: int) -> None:
    example, (_, scores) = annotated(seed), synthetic_pages.page(seed, ties=True)
    evidence = gather_evidence(example, scores, 30)
    choices = block_choices(example, evidence)
    for row, block in enumerate(evidence.blocks.tolist()):
        long = example.candidates[block].span
        right, _ = is_right(example, Prediction(1, long))
        assert right == (choices is not None and bool(choices.right[row]))
        options = evidence.options(row)
        for i, right in enumerate(right_options(example, options).tolist()):
            kind = AnswerType(int(options.types[i]))
            if kind is AnswerType.LONG:
                continue
            start, end = options.spans[i].tolist()
            predictions = [Prediction(1, yes_no=word) for word in WORDS]  # which one is not told
            if kind is AnswerType.SHORT:
                predictions = [Prediction(1, shorts=(Span(start, end + 1),))]
            assert right == any(is_right(example, one)[1] for one in predictions)


def test_no_block_is_chosen_where_gold_lacks_the_passage_of_yes() -> None:
    example, scores = synthetic_pages.page(1)
    unknown = Annotation(None, None, (), YesNo.YES)
    own = replace(example, annotations=(unknown,), answers=("yes",))
    evidence = gather_evidence(own, scores, 30)
    assert len(evidence.blocks) and block_choices(own, evidence) is None
    assert block_choices(replace(own, answers=None), evidence) is not None  # "no answer"


def sampled(names: tuple[str, ...], truth: RankingWeights, n: int) -> list[ChoiceSet]:
    """Returns choice sets whose right choices are sampled from the probabilities of ``truth``."""
    draw = np.random.default_rng(7)
    weights = [getattr(truth, name) for name in names]
    choice_sets = []
    for _ in range(n):
        features = draw.normal(0, 1.5, (6, len(weights)))
        total = np.exp(features @ weights)
        right = np.arange(6) == draw.choice(6, p=total / total.sum())
        choice_sets.append(ChoiceSet(features, right))
    return choice_sets


def test_fitting_recovers_the_weights_of_sampled_data() -> None:
    truth = RankingWeights(
        evidence=0.6, bm25=0.8, page_length=-0.5, few_blocks=0.4, null=1.5,
        short_evidence=0.7, short_length=-0.4, no_short=0.5, yes_no=-0.6,
    )  # fmt: skip
    blocks, options = (sampled(names, truth, 3000) for names in (BLOCK_WEIGHTS, OPTION_WEIGHTS))
    fitted = fit_weights(blocks, options, RankingWeights())
    for name in (*BLOCK_WEIGHTS, *OPTION_WEIGHTS):
        assert getattr(fitted, name) == pytest.approx(getattr(truth, name), abs=0.1), name
    bent = fit_few_blocks(blocks, replace(truth, few_blocks=0.0))
    assert bent.few_blocks == pytest.approx(truth.few_blocks, abs=0.1)
    assert bent == replace(truth, few_blocks=bent.few_blocks)  # the others are kept
