"""Fits the weights of the default decision to annotated pages, by maximum likelihood.

Each page gives one choice set to each softmax of ``nq.postprocess.ranking`` (a conditional logit
model): the blocks and "no answer", and the options of the right block. For n choice sets, in which
the weights w give the choices the probabilities p and the weights v of the start give q,

    loss(w) = - sum of log p(right choices) + m / n * sum of KL(q || p) + |w - v|^2 / 2

The second term is the loss of m further questions whose choices are those of the start. It draws a
fit to a few questions to the decision that the model has, and is little beside hundreds. The third
is for what the choice sets do not tell, such as the weight of a feature that is 0 in all of them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from nq.config import RankingWeights
from nq.postprocess.evidence import Evidence, Options
from nq.records import AnswerType, Example, FloatArray, IntArray, Span, YesNo

PENALTY = 1.0
DIGITS = 4
IMPOSSIBLE = -1e6
PRIOR_QUESTIONS = 80.0
"""Questions that a fitted decision counts as when it is fitted again: m in the loss.

Fitted again on the even half of dev, the decision of `small` then changes few answers by
4 questions, and has by 280 the F1 that it has without this prior.
"""
MIN_EVIDENCE_WEIGHT = 1e-3
"""More evidence is never a reason against a choice."""
OPTION_WEIGHTS = ("short_evidence", "short_length", "no_short", "yes_no")


@dataclass(frozen=True, slots=True, eq=False)
class ChoiceSet:
    """Candidates of one choice; column 0 of ``features`` ``[N, F]`` is the model score.

    At least one of them is ``right``. The choice counts as ``weight`` choices.
    """

    features: FloatArray
    right: IntArray
    weight: float = 1.0


def block_choices(example: Example, evidence: Evidence) -> ChoiceSet | None:
    """Returns the choice among blocks and, last, "no answer"; ``None`` if no right one is in it."""
    gold = gold_longs(example)
    is_right = [span in gold for span in _spans(example, evidence)]
    right = np.array([*is_right, not gold and not example.lacks_passage])
    if not right.any():
        return None
    null = np.zeros(len(is_right))
    features = np.column_stack([evidence.block_scores(), evidence.features, null])
    no_answer = np.eye(1, features.shape[1], features.shape[1] - 1)
    return ChoiceSet(np.concatenate([features, no_answer]), right)


def option_choices(example: Example, evidence: Evidence) -> ChoiceSet | None:
    """Returns the choice of a short answer in the best right block; ``None`` if none is right."""
    options = _gold_options(example, evidence)
    if options is None:
        return None
    right = right_options(example, options)
    features = np.column_stack([options.evidence, options.features])
    return ChoiceSet(features, right) if right.any() else None


def yes_no_separation(
    example: Example,
    evidence: Evidence,
) -> tuple[float, bool] | None:
    """Returns the log odds of yes against no in the best right block, and whether yes is right.

    It is ``None`` where the gold is neither or both, or the model gives neither.
    """
    gold = {a.yes_no for a in example.annotations or ()} - {YesNo.NONE}
    options = _gold_options(example, evidence)
    if options is None or len(gold) != 1 or AnswerType.YES not in options.types:
        return None
    odds = dict(zip(options.types.tolist(), options.evidence.tolist(), strict=True))
    return odds[AnswerType.YES] - odds[AnswerType.NO], YesNo.YES in gold


def _spans(example: Example, evidence: Evidence) -> list[Span]:
    return [example.candidates[block].span for block in evidence.blocks.tolist()]


def _gold_options(example: Example, evidence: Evidence) -> Options | None:
    gold = gold_longs(example)
    rows = [row for row, span in enumerate(_spans(example, evidence)) if span in gold]
    if not rows:
        return None
    scores = evidence.block_scores().tolist()
    return evidence.options(max(rows, key=scores.__getitem__))


def gold_longs(example: Example) -> set[Span]:
    """Returns the gold long answers; empty if too few annotators gave one."""
    longs = [a.long for a in example.annotations or () if a.long is not None]
    return set(longs) if len(longs) >= _annotators_needed(example) else set()


def right_options(example: Example, options: Options) -> IntArray:
    """Returns ``[O]`` which short answers of a block the evaluation counts as right.

    Where the gold has no short answer that is "no short answer" (type LONG). Yes and no are both
    right where either is, since one weight tells whether the question asks for them.
    """
    answered = [one for one in example.annotations or () if one.has_short]
    if len(answered) < _annotators_needed(example):
        return np.asarray(options.types == AnswerType.LONG)
    spans = {one.shorts[0] for one in answered if len(set(one.shorts)) == 1}
    is_right = [Span(start, end + 1) in spans for start, end in options.spans.tolist()]
    right = (options.types == AnswerType.SHORT) & is_right
    if any(one.yes_no is not YesNo.NONE for one in answered):
        right |= np.isin(options.types, (AnswerType.YES, AnswerType.NO))
    return np.asarray(right)


def _annotators_needed(example: Example) -> int:
    """Returns how many must agree that there is an answer; gold that is text has no annotators."""
    is_text = example.answers is not None
    return 1 if is_text or len(example.annotations or ()) <= 1 else 2


def fit_weights(
    blocks: Sequence[ChoiceSet],
    options: Sequence[ChoiceSet],
    start: RankingWeights,
    prior_questions: float = 0.0,
) -> RankingWeights:
    """Fits the weights of blocks and of short answers; without choice sets they stay ``start``.

    Args:
        blocks: the choices among the blocks of each page.
        options: the choices among the short answers of the right block of each page.
        start: the weights to which the fit is drawn.
        prior_questions: as how many further questions ``start`` counts; by default it counts by the
            L2 penalty alone.
    """
    with_blocks = fit_some_weights(blocks, start, prior_questions=prior_questions)
    return _fitted(with_blocks, OPTION_WEIGHTS, OPTION_WEIGHTS, options, prior_questions)


def fit_some_weights(
    blocks: Sequence[ChoiceSet],
    start: RankingWeights,
    fitted: Collection[str] = (),
    prior_questions: float = 0.0,
) -> RankingWeights:
    """Fits weights of blocks alone: the named ones, or all.

    With weights of features that are 0 on other pages, it changes no answer there.
    """
    names = ("evidence", *start.BLOCK_FEATURES, "null")
    return _fitted(start, names, fitted or names, blocks, prior_questions)


class Loss:
    """The loss of weights on choice sets, and its gradient (see the module).

    Infinite evidence is made finite.
    """

    def __init__(
        self,
        choice_sets: Sequence[ChoiceSet],
        start: FloatArray,
        prior_questions: float,
    ) -> None:
        self.start = start
        self.sizes = np.array([len(choices.right) for choices in choice_sets])
        self.first = np.cumsum(self.sizes) - self.sizes
        features = np.concatenate([choices.features for choices in choice_sets])
        self.features = np.maximum(features, IMPOSSIBLE)
        self.right = np.concatenate([choices.right for choices in choice_sets]).astype(bool)
        self.weight = np.array([choices.weight for choices in choice_sets])
        self.prior_weight = self.weight * prior_questions / self.weight.sum()
        self.log_prior = self._log_probabilities(self.features @ start)
        self.prior = np.exp(self.log_prior)

    def __call__(self, w: FloatArray) -> tuple[float, FloatArray]:
        utility = self.features @ w
        log_predicted = self._log_probabilities(utility)
        log_right = np.where(self.right, log_predicted, -np.inf)
        log_likelihood = np.logaddexp.reduceat(log_right, self.first)
        divergence = np.add.reduceat(self.prior * (self.log_prior - log_predicted), self.first)
        move = w - self.start
        value = self.prior_weight @ divergence - self.weight @ log_likelihood
        value += PENALTY / 2 * float(move @ move)

        predicted = np.exp(log_predicted)
        wanted = np.exp(log_right - np.repeat(log_likelihood, self.sizes))
        by_choice = np.repeat(self.weight, self.sizes) * (predicted - wanted)
        by_choice += np.repeat(self.prior_weight, self.sizes) * (predicted - self.prior)
        return float(value), by_choice @ self.features + PENALTY * move

    def _log_probabilities(self, utility: FloatArray) -> FloatArray:
        """Returns the log-probability of each choice in its set."""
        total = np.logaddexp.reduceat(utility, self.first)
        return np.asarray(utility - np.repeat(total, self.sizes))


def _fitted(
    start: RankingWeights,
    names: Sequence[str],
    fitted: Collection[str],
    choice_sets: Sequence[ChoiceSet],
    prior_questions: float,
) -> RankingWeights:
    """Returns ``start`` with the ``fitted`` ones of the weights of a choice."""
    if not choice_sets:
        return start
    prior = np.array([getattr(start, name) for name in names])
    bounds: list[tuple[float | None, float | None]] = [
        (None, None) if name in fitted else (value, value)
        for name, value in zip(names, prior.tolist(), strict=True)
    ]
    if names[0] in fitted:
        bounds[0] = MIN_EVIDENCE_WEIGHT, None
    loss = Loss(choice_sets, prior, prior_questions)
    weights = minimize(loss, prior, jac=True, method="L-BFGS-B", bounds=bounds).x
    values = zip(names, weights.tolist(), strict=True)
    return replace(start, **{name: round(value, DIGITS) for name, value in values})
