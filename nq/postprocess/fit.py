"""Fits the weights of the default decision to annotated pages, by maximum likelihood.

Each page gives one choice set to each softmax of ``nq.postprocess.ranking`` (a conditional logit
model): the blocks and "no answer", and the options of the right block. The loss is the negative
log-probability of the right choices, with an L2 penalty towards weights that trust the model and
expect answers at their usual positions (``PRIOR_WEIGHTS``), so that a few hundred
pages of any kind are enough: weights that the pages do not determine keep their prior values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from nq.config import CascadeWeights, RankingWeights
from nq.postprocess.evidence import Evidence, Hypotheses, Options
from nq.records import AnswerType, Example, FloatArray, IntArray, Span, YesNo

PRIOR_WEIGHTS = RankingWeights(table=-1.73, list=-3.04, position=-1.71)
"""Where answers are, measured on a sample of BERT-Joint's training features (``python -m
experiments.positions``): of 463 questions, 40 % are answered in the first paragraph of the page,
11 % in the second, 8 % in the first table. The share of the n-th falls as a power of n."""
CASCADE_PRIOR_WEIGHTS = CascadeWeights(**PRIOR_WEIGHTS.to_dict())
"""The same for a cascade; the block scores of its first model have no weight yet."""
PENALTY = 1.0
DIGITS = 4
IMPOSSIBLE = -1e6
MIN_EVIDENCE_WEIGHT = 1e-3
"""More evidence is never a reason against a choice."""
MAX_EVIDENCE_PERCENTILE = 99.9
OPTION_WEIGHTS = ("short_evidence", "short_length", "no_short", "yes", "no")


@dataclass(frozen=True, slots=True, eq=False)
class ChoiceSet:
    """N choices and the right ones among them.

    Args:
        hypotheses: the evidence for each choice.
        features: ``[N, F]`` of each choice.
        right: ``[N]`` whether it is right; at least one is.
    """

    hypotheses: Hypotheses
    features: FloatArray
    right: IntArray


def block_choices(example: Example, evidence: Evidence) -> ChoiceSet | None:
    """Returns the blocks and, last, "no answer"; ``None`` if no right block has evidence."""
    gold = gold_longs(example)
    spans = [example.candidates[i].span for i in evidence.blocks.tolist()]
    right = np.array([*(span in gold for span in spans), not gold])
    if not right.any():
        return None
    blocks, null = evidence.hypotheses, len(spans)
    hypotheses = Hypotheses(
        np.append(blocks.evidence, 0.0),
        np.append(blocks.group, len(blocks.choice)),
        np.append(blocks.choice, null),
    )
    features = np.concatenate([evidence.features, np.zeros((1, evidence.features.shape[1]))])
    return ChoiceSet(hypotheses, np.column_stack([features, np.arange(null + 1) == null]), right)


def option_choices(example: Example, evidence: Evidence) -> ChoiceSet | None:
    """Returns the options of the best right block; ``None`` if no option is right."""
    gold = gold_longs(example)
    rows = [
        row
        for row, block in enumerate(evidence.blocks.tolist())
        if example.candidates[block].span in gold
    ]
    if not rows:
        return None
    scores = evidence.hypotheses.scores(1.0)
    options = evidence.options(max(rows, key=lambda row: float(scores[row])))
    right = right_options(example, options)
    numbers = np.arange(len(right))
    hypotheses = Hypotheses(options.evidence, numbers, numbers)
    return ChoiceSet(hypotheses, options.features, right) if right.any() else None


def gold_longs(example: Example) -> set[Span]:
    """Returns the right long answers; none if too few annotators gave one."""
    longs = [a.long for a in example.annotations or () if a.long is not None]
    return set(longs) if len(longs) >= _annotators_needed(example) else set()


def right_options(example: Example, options: Options) -> IntArray:
    """Returns ``[O]`` which options the evaluation counts as right.

    Where the gold has no short answer that is "no short answer" (type LONG).
    """
    annotations = example.annotations or ()
    answered = [a for a in annotations if a.shorts or a.yes_no is not YesNo.NONE]
    if len(answered) < _annotators_needed(example):
        return np.asarray(options.types == AnswerType.LONG)
    spans = {a.shorts[0] for a in answered if len(set(a.shorts)) == 1}
    words = {a.yes_no for a in answered} - {YesNo.NONE}
    right = []
    for kind, (start, end) in zip(options.types.tolist(), options.spans.tolist(), strict=True):
        short = kind == AnswerType.SHORT and Span(start, end + 1) in spans
        right.append(short or AnswerType(kind).yes_no in words)
    return np.array(right)


def _annotators_needed(example: Example) -> int:
    """Returns how many annotators make an answer: two, or the only one."""
    return 2 if len(example.annotations or ()) > 1 else 1


def fit(
    blocks: Sequence[ChoiceSet],
    options: Sequence[ChoiceSet],
    start: RankingWeights = PRIOR_WEIGHTS,
) -> RankingWeights:
    """Returns the fitted weights of both softmaxes and the largest expected evidence.

    The calibration (scales and shifts) is left as it is. The penalty prefers the weights ``start``,
    which a softmax without choice sets keeps.
    """
    names = ("evidence", *start.BLOCK_FEATURES, "null")
    weights = _fitted(_fitted(start, names, blocks), OPTION_WEIGHTS, options)
    if not blocks:
        return weights
    scores = [choices.hypotheses.scores(weights.evidence)[:-1] for choices in blocks]
    largest = float(np.percentile(np.concatenate(scores), MAX_EVIDENCE_PERCENTILE))
    return replace(weights, max_evidence=round(largest, DIGITS))


def _fitted(
    start: RankingWeights, names: Sequence[str], choice_sets: Sequence[ChoiceSet]
) -> RankingWeights:
    """Returns ``start`` with these weights fitted: first that of the evidence, then the features'.

    Minimizes the penalized negative log-likelihood by L-BFGS-B with the analytic gradient. Infinite
    evidence is made finite.
    """
    if not choice_sets:
        return start
    sizes = np.array([len(choices.right) for choices in choice_sets])
    first = np.cumsum(sizes) - sizes
    features = np.concatenate([choices.features for choices in choice_sets])
    right = np.concatenate([choices.right for choices in choice_sets]).astype(bool)
    parts = [choices.hypotheses for choices in choice_sets]
    groups = np.cumsum([0, *(len(part.choice) for part in parts)])
    hypotheses = Hypotheses(
        np.maximum(np.concatenate([part.evidence for part in parts]), IMPOSSIBLE),
        np.concatenate([part.group + n for part, n in zip(parts, groups, strict=False)]),
        np.concatenate([part.choice + n for part, n in zip(parts, first, strict=True)]),
    )

    def loss(w: FloatArray) -> tuple[float, FloatArray]:
        evidence, slope = hypotheses.scores_and_slopes(w[0])
        utility = evidence + features @ w[1:]
        total = np.logaddexp.reduceat(utility, first)
        good = np.logaddexp.reduceat(np.where(right, utility, -np.inf), first)
        penalty = PENALTY / 2 * float(((w - prior) ** 2).sum())
        predicted = np.exp(utility - np.repeat(total, sizes))
        wanted = np.exp(np.where(right, utility - np.repeat(good, sizes), -np.inf))
        columns = np.column_stack([slope, features])
        gradient = (predicted - wanted) @ columns + PENALTY * (w - prior)
        return float((total - good).sum()) + penalty, gradient

    prior = np.array([getattr(start, name) for name in names])
    bounds = [(MIN_EVIDENCE_WEIGHT, None), *[(None, None)] * (len(names) - 1)]
    fitted = minimize(loss, prior, jac=True, method="L-BFGS-B", bounds=bounds).x
    values = {name: round(float(v), DIGITS) for name, v in zip(names, fitted, strict=True)}
    return replace(start, **values)


def fit_calibration(probabilities: Sequence[float], right: Sequence[bool]) -> tuple[float, float]:
    """Returns Platt's scale and shift under which the probabilities fit the outcomes best."""
    p = np.clip(np.asarray(probabilities, np.float64), 1e-9, 1 - 1e-9)
    odds, hit = np.log(p) - np.log1p(-p), np.asarray(right, np.float64)

    def loss(w: FloatArray) -> tuple[float, FloatArray]:
        x = w[0] * odds + w[1]
        miss = expit(x) - hit
        penalty = PENALTY / 2 * ((w[0] - 1) ** 2 + w[1] ** 2)
        value = float((np.logaddexp(0, x) - hit * x).sum()) + penalty
        return value, np.array([miss @ odds + PENALTY * (w[0] - 1), miss.sum() + PENALTY * w[1]])

    scale, shift = minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B").x
    return round(max(float(scale), MIN_EVIDENCE_WEIGHT), DIGITS), round(float(shift), DIGITS)
