"""Tests of the weights that are fitted to annotated pages."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from nq.config import RankingWeights
from nq.evaluation.evaluate import example_gold
from nq.evaluation.nq_eval import decisions_of_one
from nq.postprocess.evidence import gather_evidence
from nq.postprocess.fit import (
    OPTION_WEIGHTS,
    PENALTY,
    ChoiceSet,
    Loss,
    block_choices,
    fit_some_weights,
    fit_weights,
    right_options,
)
from nq.records import (
    Annotation,
    AnswerType,
    Example,
    FloatArray,
    IntArray,
    Prediction,
    Span,
    YesNo,
)
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
    long, short = decisions_of_one(example_gold(example), prediction)
    return long.correct, short.correct


@given(seeds, st.sampled_from([None, ("gold that is text",)]))
def test_right_choices_are_those_that_the_evaluation_counts_as_right(
    seed: int, answers: tuple[str, ...] | None
) -> None:
    example, (_, scores) = annotated(seed), synthetic_pages.page(seed, ties=True)
    example = replace(example, answers=answers)
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
    bent = fit_some_weights(blocks, replace(truth, few_blocks=0.0), ["few_blocks"])
    assert bent.few_blocks == pytest.approx(truth.few_blocks, abs=0.1)
    assert bent == replace(truth, few_blocks=bent.few_blocks)  # the others are kept


# --- the loss, and the decision to which it is drawn

PRIORS = st.sampled_from([0.0, 3.0, 40.0])
START = RankingWeights(
    evidence=0.3, bm25=0.25, page_length=-1.0, null=-2.0, short_evidence=0.6, short_length=-0.5
)


def random_choices(seed: int, n_features: int) -> list[ChoiceSet]:
    """Returns a few choice sets of different sizes and weights, some with impossible choices."""
    draw, choice_sets = np.random.default_rng(seed), []
    for _ in range(draw.integers(1, 6)):
        size = int(draw.integers(1, 7))
        features = draw.normal(0, 2, (size, n_features))
        right: IntArray = np.asarray(draw.random(size) < 0.4, np.int64)
        right[draw.integers(size)] = True
        features[(draw.random(size) < 0.2) & (right == 0), 0] = -np.inf
        choice_sets.append(ChoiceSet(features, right, float(draw.choice([0.5, 1.0, 3.0]))))
    return choice_sets


def slow_loss(
    choice_sets: list[ChoiceSet], start: FloatArray, w: FloatArray, prior_questions: float
) -> float:
    """Returns the loss as the module's docstring has it, one choice set after the other."""
    total = sum(choices.weight for choices in choice_sets)
    loss = PENALTY / 2 * float(((w - start) ** 2).sum())
    for choices in choice_sets:
        finite = np.isfinite(choices.features[:, 0])
        features = choices.features[finite]
        p, q = softmax(features @ w), softmax(features @ start)
        loss -= choices.weight * float(np.log(p[choices.right[finite] > 0].sum()))
        loss += choices.weight * prior_questions / total * float((q * np.log(q / p)).sum())
    return loss


@given(seeds, PRIORS)
def test_the_loss_is_that_of_its_formula_and_the_gradient_its_slope(
    seed: int, prior_questions: float
) -> None:
    n_features = 4
    choice_sets, draw = random_choices(seed, n_features), np.random.default_rng(seed + 1)
    start, w = (np.append(abs(draw.normal()), draw.normal(size=n_features - 1)) for _ in range(2))
    loss = Loss(choice_sets, start, prior_questions)
    value, gradient = loss(w)
    assert value == pytest.approx(slow_loss(choice_sets, start, w, prior_questions), abs=1e-9)
    step = 1e-5
    for i, slope in enumerate(gradient.tolist()):
        ends = [loss(w + sign * step * np.eye(n_features)[i])[0] for sign in (1, -1)]
        assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=1e-4)


def test_the_more_the_start_counts_the_less_a_fit_moves() -> None:
    truth = replace(START, evidence=0.9, bm25=1.0, null=1.0, short_evidence=1.2)
    blocks, options = (sampled(names, truth, 60) for names in (BLOCK_WEIGHTS, OPTION_WEIGHTS))
    moves = []
    for prior_questions in (0.0, 40.0, 400.0, 1e9):
        fitted = fit_weights(blocks, options, START, prior_questions)
        distance = [getattr(fitted, name) - getattr(START, name) for name in vars(START)]
        moves.append(float(np.linalg.norm(distance)))
    assert moves == sorted(moves, reverse=True)
    assert moves[0] > 1 and moves[-1] == 0
    assert fit_weights(blocks, options, START) == fit_weights(blocks, options, START, 0.0)
