"""Annotated pages -> weights of the default decision, by maximum likelihood.

Each page gives a lesson to both softmaxes of ``nq.postprocess.ranking``: which blocks are right
(none: "no answer" is), and which options of the right block are. The loss is the negative
logarithm of the probability that falls on what is right, with a pull towards the weights that
take the model at its word and expect answers where they usually stand
(``nq.postprocess.position_prior``), so that a few hundred pages are enough, of whatever kind:
what they do not show stays as expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from nq.config import RankingWeights
from nq.postprocess.position_prior import USUAL
from nq.postprocess.ranking import Evidence, Hypotheses, Options
from nq.records import AnswerType, Example, FloatArray, IntArray, Span, YesNo

PULL = 1.0
ROUNDED = 4
IMPOSSIBLE = -1e6
LEAST = 1e-3
"""Evidence counts for something: more of it is never a reason against a choice."""
MOST = 99.9
"""Percentile of evidence beyond which none is expected."""
ANNOTATORS_NEEDED = 2
BLOCK = ("evidence", "overlap", "table", "list", "place", "null")
OPTION = ("short_evidence", "short_length", "whole", "yes", "no")
_YES_NO = {AnswerType.YES: YesNo.YES, AnswerType.NO: YesNo.NO}


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """What can be chosen from, and what of it is right.

    Args:
        hypotheses: what the model says for each of N choices.
        features: ``[N, F]`` of each choice.
        right: ``[N]`` whether it is right; at least one is.
    """

    hypotheses: Hypotheses
    features: FloatArray
    right: IntArray


def block_lesson(example: Example, found: Evidence) -> Lesson | None:
    """Blocks and, last, "no answer"; ``None`` where the right block was not read."""
    gold = gold_longs(example)
    spans = [example.candidates[i].span for i in found.blocks.tolist()]
    right = np.array([*(span in gold for span in spans), not gold])
    if not right.any():
        return None
    said, null = found.hypotheses, len(spans)
    hypotheses = Hypotheses(
        np.append(said.evidence, 0.0),
        np.append(said.reading, len(said.choice)),
        np.append(said.choice, null),
    )
    columns = np.concatenate([found.features, np.zeros((1, found.features.shape[1]))])
    return Lesson(hypotheses, np.column_stack([columns, np.arange(null + 1) == null]), right)


def option_lesson(example: Example, found: Evidence) -> Lesson | None:
    """The options of the right block; ``None`` where there is no right one."""
    gold = gold_longs(example)
    rows = [
        row
        for row, block in enumerate(found.blocks.tolist())
        if example.candidates[block].span in gold
    ]
    if not rows:
        return None
    said = found.hypotheses.said(1.0)
    options = found.options(max(rows, key=lambda row: float(said[row])))
    right = right_options(example, options)
    one_each = Hypotheses(options.evidence, np.arange(len(right)), np.arange(len(right)))
    return Lesson(one_each, options.features, right) if right.any() else None


def gold_longs(example: Example) -> set[Span]:
    """The long answers that count as right; none where too few annotators gave one."""
    given = [a.long for a in example.annotations or () if a.long is not None]
    return set(given) if len(given) >= _needed(example) else set()


def right_options(example: Example, options: Options) -> IntArray:
    """``[O]`` which options the evaluation would take; "the whole block" without a short answer."""
    annotations = example.annotations or ()
    given = [a for a in annotations if a.shorts or a.yes_no is not YesNo.NONE]
    if len(given) < _needed(example):
        return np.asarray(options.kinds == AnswerType.LONG)
    spans = {a.shorts[0] for a in given if len(set(a.shorts)) == 1}
    words = {a.yes_no for a in given}
    right = []
    for kind, (start, end) in zip(options.kinds.tolist(), options.spans.tolist(), strict=True):
        short = kind == AnswerType.SHORT and Span(start, end + 1) in spans
        right.append(short or (kind in _YES_NO and _YES_NO[AnswerType(kind)] in words))
    return np.array(right)


def _needed(example: Example) -> int:
    """So many annotators make an answer: two, or the only one."""
    return min(ANNOTATORS_NEEDED, len(example.annotations or ())) or 1


def fit(blocks: Sequence[Lesson], options: Sequence[Lesson]) -> RankingWeights:
    """The weights of both softmaxes and the highest evidence to expect; scaling is left as it is.

    Args:
        blocks, options: the lessons; without any the weights stay as expected.
    """
    weights = _fitted(_fitted(USUAL, BLOCK, blocks), OPTION, options)
    if not blocks:
        return weights
    said = [lesson.hypotheses.said(weights.evidence)[:-1] for lesson in blocks]
    most = float(np.percentile(np.concatenate(said), MOST))
    return replace(weights, most_evidence=round(most, ROUNDED))


def _fitted(
    start: RankingWeights, names: Sequence[str], lessons: Sequence[Lesson]
) -> RankingWeights:
    """The first of the weights counts evidence, the others the features."""
    if not lessons:
        return start
    sizes = np.array([len(lesson.right) for lesson in lessons])
    first = np.cumsum(sizes) - sizes
    features = np.concatenate([lesson.features for lesson in lessons])
    right = np.concatenate([lesson.right for lesson in lessons]).astype(bool)
    together = _together(lessons)

    def loss(w: FloatArray) -> tuple[float, FloatArray]:
        evidence, slope = together.said_and_slope(w[0])
        utility = evidence + features @ w[1:]
        total = np.logaddexp.reduceat(utility, first)
        good = np.logaddexp.reduceat(np.where(right, utility, -np.inf), first)
        pull = PULL / 2 * float(((w - origin) ** 2).sum())
        everything = np.exp(utility - np.repeat(total, sizes))
        wanted = np.where(right, np.exp(utility - np.repeat(good, sizes)), 0.0)
        columns = np.column_stack([slope, features])
        gradient = (everything - wanted) @ columns + PULL * (w - origin)
        return float((total - good).sum()) + pull, gradient

    origin = np.array([getattr(start, name) for name in names])
    bounds = [(LEAST, None), *[(None, None)] * (len(names) - 1)]
    found = minimize(loss, origin, jac=True, method="L-BFGS-B", bounds=bounds).x
    return replace(
        start, **{n: round(float(v), ROUNDED) for n, v in zip(names, found, strict=True)}
    )


def _together(lessons: Sequence[Lesson]) -> Hypotheses:
    """The hypotheses of all lessons, choices numbered on; what is impossible is only unlikely."""
    all_of = [lesson.hypotheses for lesson in lessons]
    readings = np.cumsum([0, *(len(one.choice) for one in all_of)])
    choices = np.cumsum([0, *(len(lesson.right) for lesson in lessons)])
    return Hypotheses(
        np.maximum(np.concatenate([one.evidence for one in all_of]), IMPOSSIBLE),
        np.concatenate([one.reading + n for one, n in zip(all_of, readings, strict=False)]),
        np.concatenate([one.choice + n for one, n in zip(all_of, choices, strict=False)]),
    )


def scaling(probabilities: Sequence[float], right: Sequence[bool]) -> tuple[float, float]:
    """Platt's scale and shift under which ``probabilities`` fit best to what was ``right``."""
    p = np.clip(np.asarray(probabilities, np.float64), 1e-9, 1 - 1e-9)
    odds, hit = np.log(p) - np.log1p(-p), np.asarray(right, np.float64)

    def loss(w: FloatArray) -> tuple[float, FloatArray]:
        x = w[0] * odds + w[1]
        miss = 1 / (1 + np.exp(-x)) - hit
        pull = PULL / 2 * ((w[0] - 1) ** 2 + w[1] ** 2)
        value = float((np.logaddexp(0, x) - hit * x).sum()) + pull
        return value, np.array([miss @ odds + PULL * (w[0] - 1), miss.sum() + PULL * w[1]])

    scale, shift = minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B").x
    return round(max(float(scale), 1e-3), ROUNDED), round(float(shift), ROUNDED)
