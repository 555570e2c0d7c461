"""The gate: counts against the official micro-F1, intervals against all possible resamples."""

import re
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nq.evaluation import nq_eval
from nq.evaluation.gate import (
    FAILED,
    PASSED,
    UNDECIDED,
    Counts,
    f1_behind,
    question_counts,
    relative_loss,
)
from nq.records import Annotation, Prediction, Span, YesNo

RIGHT, WRONG, NULL = (1, 1, 1), (0, 1, 1), (0, 0, 0)
LONGS = st.sampled_from([None, Span(1, 3), Span(4, 9)])
SHORTS = st.sampled_from(
    [
        ((), YesNo.NONE),
        ((Span(1, 3),), YesNo.NONE),
        ((Span(4, 9),), YesNo.NONE),
        ((), YesNo.YES),
        ((), YesNo.NO),
    ]
)
GOLD = st.builds(lambda long, short: Annotation(long, None, *short), LONGS, SHORTS)
ANSWERS = st.builds(
    lambda long, short: Prediction(0, long, shorts=short[0], yes_no=short[1]), LONGS, SHORTS
)
QUESTIONS = st.tuples(st.lists(GOLD, min_size=1, max_size=3), ANSWERS, ANSWERS)


def f1(counts: list[Counts]) -> float:
    """Returns micro-F1 from precision and recall."""
    correct, predicted, gold = map(sum, zip(*counts, strict=True))
    precision = correct / predicted if predicted else 0.0
    recall = correct / gold if gold else 0.0
    return 2 * precision * recall / (precision + recall) if correct else 0.0


@given(st.lists(QUESTIONS, min_size=2, max_size=20))
def test_the_scores_are_those_of_the_official_evaluation(
    questions: list[tuple[list[Annotation], Prediction, Prediction]],
) -> None:
    gold: nq_eval.Gold = {number: answers for number, (answers, *_) in enumerate(questions)}
    runs: list[nq_eval.Predictions] = [
        {number: first for number, (_, first, _) in enumerate(questions)},
        {number: second for number, (_, _, second) in enumerate(questions)},
    ]
    mine, other = (nq_eval.score(gold, run)["micro_f1"] for run in runs)
    counts = [question_counts(gold, run) for run in runs]
    if not other:
        with pytest.raises(ValueError, match="0"):
            relative_loss(*counts)
        return
    loss = relative_loss(*counts)
    assert (loss.micro_f1, loss.other_micro_f1) == pytest.approx((mine, other))
    assert loss.loss == pytest.approx((other - mine) / other)
    assert loss.low <= loss.high <= 1 and loss == relative_loss(*counts)


HALVES = st.integers(0, 4).map(lambda n: n / 2)
"""Counts of text gold: half of an F1 of words, here 0, 0.5 or 1, and whole ones."""
PAIRS = st.tuples(HALVES, HALVES, HALVES, HALVES, HALVES)


@given(st.lists(PAIRS, min_size=2, max_size=12))
@example([(0.5, 0.0, 1.0, 0.5, 0.0)] * 2)  # less than one right answer in all
@example([(0.0, 0.0, 0.5, 0.5, 0.0)] * 2)
def test_counts_that_are_no_whole_numbers_are_not_rounded(
    pairs: list[tuple[float, ...]],
) -> None:
    """The slower truth has exact fractions; no answer is right that is not given and in gold."""
    mine, others = list[Counts](), list[Counts]()
    for right, predicted, gold, other_right, other_predicted in pairs:
        mine.append((min(right, gold), predicted, gold))
        others.append((min(other_right, gold), other_predicted, gold))
    (correct, items), (other_correct, other_items) = (
        (sum(Fraction(c) for c, _, _ in run), sum(Fraction(p) + Fraction(g) for _, p, g in run))
        for run in (mine, others)
    )
    if not other_correct:
        with pytest.raises(ValueError, match="0"):
            relative_loss(mine, others)
        return
    f1, other_f1 = 2 * correct / items, 2 * other_correct / other_items
    loss = relative_loss(mine, others)
    assert (loss.micro_f1, loss.other_micro_f1) == pytest.approx((float(f1), float(other_f1)))
    assert loss.loss == pytest.approx(float(1 - f1 / other_f1))
    assert loss.low - 1e-12 <= loss.loss <= loss.high + 1e-12
    behind, low, high = f1_behind(mine, others)
    assert behind == pytest.approx(float(other_f1 - f1)) and low <= behind <= high


@pytest.mark.parametrize(
    ("mine", "others"),
    [
        ([RIGHT, WRONG, RIGHT, RIGHT], [RIGHT, RIGHT, RIGHT, RIGHT]),
        (
            [RIGHT, (1, 2, 2), WRONG, (2, 2, 2), (0, 2, 1)],
            [(1, 1, 1), (2, 2, 2), RIGHT, RIGHT, NULL],
        ),
        ([RIGHT, WRONG, WRONG, RIGHT], [WRONG, RIGHT, WRONG, RIGHT]),
    ],
)
def test_the_interval_is_that_of_all_possible_resamples(
    mine: list[Counts], others: list[Counts]
) -> None:
    losses = []
    for draw in product(range(len(mine)), repeat=len(mine)):
        other = f1([others[i] for i in draw])
        losses.append(1 - f1([mine[i] for i in draw]) / other if other else 0.0)
    loss = relative_loss(mine, others)
    for end, share in ((loss.low, 0.05), (loss.high, 0.95)):
        # 2000 draws estimate a share of 0.05 within 0.02 (four standard errors)
        low, high = np.quantile(losses, [share - 0.02, share + 0.02], method="inverted_cdf")
        assert low - 1e-9 <= end <= high + 1e-9


@pytest.mark.parametrize(
    ("mine", "others", "interval", "verdicts"),
    [
        ([RIGHT, WRONG, NULL], [RIGHT, WRONG, NULL], (0, 0, 0), {0.0: PASSED}),  # drawn in pairs
        ([(0, 0, 1)] * 50, [RIGHT] * 50, (1, 1, 1), {0.99: FAILED}),
        ([(0.25, 0, 1)] * 4, [(0.5, 0, 1)] * 4, (0.5, 0.5, 0.5), {0.4: FAILED, 0.5: PASSED}),
        ([WRONG] * 3, [RIGHT, WRONG, WRONG], (1, 0, 1), {0.5: UNDECIDED}),  # draws without any
        ([RIGHT] * 60, [RIGHT] * 30 + [WRONG] * 30, None, {0.0: PASSED}),  # a gain
        ([RIGHT] * 97 + [WRONG] * 3, [RIGHT] * 100, None, {0.02: UNDECIDED}),
        ([RIGHT] * 2910 + [WRONG] * 90, [RIGHT] * 3000, None, {0.02: FAILED, 0.04: PASSED}),
    ],
)
def test_loss_and_verdict_by_hand(
    mine: list[Counts],
    others: list[Counts],
    interval: tuple[float, float, float] | None,
    verdicts: dict[float, str],
) -> None:
    loss = relative_loss(mine, others)
    assert interval in (None, (loss.loss, loss.low, loss.high))
    name, size, ends = loss.change
    assert name == ("relative gain" if loss.loss < 0 else "relative loss")
    numbers = [float(number) for number in re.findall(r"(-?[\d.]+)%", f"{size} {ends}")]
    sign = -1 if loss.loss < 0 else 1
    exact = [sign * loss.loss, 0.9, *sorted((sign * loss.low, sign * loss.high))]
    assert numbers == pytest.approx([100 * x for x in exact], abs=0.051)
    assert {most: replace(loss, max_loss=most).verdict for most in verdicts} == verdicts
