"""Tunes the decision of a model by the scores of annotated questions, and measures it on others.

The examples with even ids determine the weights and the thresholds; those with odd ids measure the
result. A decision that was fitted before is where the fit begins, and it is drawn to that
(``nq.postprocess.fit``), so that few questions change it little. Its thresholds, and whether it
says yes and no, change only where that is better beyond chance.
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from nq.config import DecisionConfig, RankingWeights
from nq.evaluation import nq_eval
from nq.evaluation.calibration import area_under_roc, expected_calibration_error
from nq.evaluation.evaluate import example_gold
from nq.evaluation.gate import is_better
from nq.evaluation.nq_eval import Gold, Predictions
from nq.postprocess.decision import RULES, decide
from nq.postprocess.fit import (
    PRIOR_QUESTIONS,
    ChoiceSet,
    block_choices,
    fit_weights,
    option_choices,
    yes_no_separation,
)
from nq.postprocess.ranking import rank
from nq.records import Example, ExampleId, Prediction, Scores, YesNo

DIGITS = 4
SLACK = 0.005  # thresholds whose F1 is within this of the best are equally good
GAP = 0.002
"""Width of the gap between scores that a threshold needs, so that rounding does not matter."""
FOLDS = 5
MIN_TUNED = 40
"""Questions with annotations from which on a decision learns enough."""
LONG_PAGE = 40  # blocks at least
ONE_ANNOTATOR = (1, 1)
"""Annotators that gold needs for a long, and for a short answer."""
YES_NO_AUC = 0.6
"""Area under the ROC curve from which on yes and no count as told apart; 0.5 is chance."""
STANDARD_ERRORS = 1.645
"""Half of the width of an interval of 90 %."""

GIVEN_F1 = {
    "micro_f1": "micro_f1",
    "long_f1": "long-answer-f1",
    "short_f1": "short-answer-f1",
}
"""Names of the F1s of the answers that are given, and the metrics that have them."""

T = TypeVar("T")
ChoiceSets = tuple[ChoiceSet | None, ChoiceSet | None]  # of blocks, and of options


@dataclass(frozen=True)
class Tuned:
    """A fitted decision, with all gold and the predictions by it, no threshold applied.

    Args:
        yes_no_auc: how well the model tells yes from no on the even half.
        long_pages: the ids of the examples with a long page.
        before: the decision that the model had, if it is measured too.
        predictions_before: by that; of the default rule no threshold is applied to them.
    """

    decision: DecisionConfig
    gold: Gold
    predictions: Predictions
    yes_no_auc: float
    long_pages: set[ExampleId]
    before: DecisionConfig | None = None
    predictions_before: Predictions = field(default_factory=dict)

    @property
    def half_sizes(self) -> tuple[int, int]:
        """The numbers of questions with gold in the even and in the odd half."""
        n_even = sum(fold_of(key) is not None for key in self.gold)
        return n_even, len(self.gold) - n_even

    def figures(self) -> dict[str, Any]:
        """Returns the figures of the odd half by name, of short and of long pages alone, too.

        Those of the decision before have ``before`` in their names. A rule without probabilities
        has only F1s there.
        """
        odd = [key for key in self.gold if fold_of(key) is None]
        long = [key for key in odd if key in self.long_pages]
        groups = {"odd": odd}
        if 0 < len(long) < len(odd):
            groups["odd_short_pages"] = [key for key in odd if key not in self.long_pages]
            groups["odd_long_pages"] = long
        figures: dict[str, Any] = {}
        for group, keys in groups.items():
            gold = _of(self.gold, keys)
            measured = measure(gold, _of(self.predictions, keys), self.decision)
            figures |= {f"{group}_{name}": value for name, value in measured.items()}
            if self.before:
                measured = measure(gold, _of(self.predictions_before, keys), self.before)
                figures |= {f"{group}_before_{name}": value for name, value in measured.items()}
        return figures


def _of(
    values: Mapping[ExampleId, T],
    keys: Iterable[ExampleId],
) -> dict[ExampleId, T]:
    return {key: values[key] for key in keys}


def fold_of(key: ExampleId) -> int | None:
    """Returns the fold of an example of the even half; ``None`` for others.

    The number of an id that is text is a digest.
    """
    if isinstance(key, str):
        text = key.encode("utf-8", "surrogatepass")
        key = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    half, is_odd = divmod(key, 2)
    return None if is_odd else half % FOLDS


def check_halves(examples: Iterable[Example], name: str) -> None:
    """Raises ``ValueError`` if no example of the even, or of the odd, half has annotations.

    It reads no more examples than that takes; ``name`` is that of the data.
    """
    halves = ("odd" if fold_of(e.example_id) is None else "even" for e in examples if e.annotations)
    first = next(halves, None)
    if first is None:
        raise ValueError(f"no annotations in {name}: give annotated data to tune on")
    if all(half == first for half in halves):
        empty = "odd" if first == "even" else "even"
        raise ValueError(
            f"no annotated example in {name} has an {empty} id (an id that is text: digest): give "
            "data with both, since even ids determine the decision and odd ones measure it"
        )


def tune_decision(
    scored: Iterable[tuple[Example, Scores]],
    decision: DecisionConfig,
    fold_of: Callable[[ExampleId], int | None] = fold_of,
    before: DecisionConfig | None = None,
) -> Tuned:
    """Fits the decision on the even half, or on all examples of which ``fold_of`` has a fold.

    A decision with other weights than the defaults counts as ``PRIOR_QUESTIONS`` further questions.
    The thresholds use predictions by weights that were fitted without the example (in ``FOLDS``
    folds), since weights fit their own examples better than others. Those of such a decision change
    only if others are better beyond chance.

    All examples with their scores are iterated twice. The maximum answer length of the decision is
    kept. ``before`` is the decision of the model as it is, to be measured too, if its rule can read
    the scores. ``ValueError`` if there is no example to fit to.
    """
    gold: Gold = {}
    choice_sets: dict[int, list[ChoiceSets]] = {}
    separations: list[tuple[float, bool]] = []
    long_pages: set[ExampleId] = set()
    for example, scores in scored:
        key = example.example_id
        if not (annotations := example_gold(example)):
            continue
        gold[key] = annotations
        if sum(candidate.top_level for candidate in example.candidates) >= LONG_PAGE:
            long_pages.add(key)
        if (fold := fold_of(key)) is None:
            continue
        evidence = rank(example, scores, decision).evidence
        sets = block_choices(example, evidence), option_choices(example, evidence)
        choice_sets.setdefault(fold, []).append(sets)
        if separation := yes_no_separation(example, evidence):
            separations.append(separation)
    if not choice_sets:
        raise ValueError("there is no annotated example to fit the decision to: give some")
    auc, says_yes_no = tell_yes_from_no(separations, decision)
    tuned = replace(decision, weights=_fit(choice_sets.values(), decision), says_yes_no=says_yes_no)
    by_fold: dict[int | None, DecisionConfig] = {None: tuned}
    for fold in range(FOLDS):
        others = (sets for other, sets in choice_sets.items() if other != fold)
        by_fold[fold] = replace(tuned, weights=_fit(others, decision))
    if before is not None and not reads_default_scores(before):
        before = None
    predictions: Predictions = {}
    predictions_before: Predictions = {}
    for example, scores in scored:
        key = example.example_id
        predictions[key] = predicted(example, scores, by_fold[fold_of(key)])
        if before is not None:
            predictions_before[key] = predicted(example, scores, before)
    folds = {key: fold for key in gold if (fold := fold_of(key)) is not None}
    fitted = _of(gold, folds), _of(predictions, folds)
    if not is_fitted(decision) or are_others_better(*fitted, tuned, folds):
        tuned = best_thresholds(*fitted, tuned)
    return Tuned(tuned, gold, predictions, auc, long_pages, before, predictions_before)


def is_fitted(decision: DecisionConfig) -> bool:
    """Returns whether a decision has other weights than the defaults."""
    return decision.weights != type(decision.weights)()


def reads_default_scores(decision: DecisionConfig) -> bool:
    """Returns whether the rule of a decision needs the same scores as the default rule."""
    rule = RULES[decision.rule]
    default = RULES["default"]
    return (rule.k, rule.text_only) == (default.k, default.text_only)


def predicted(
    example: Example,
    scores: Scores,
    decision: DecisionConfig,
) -> Prediction:
    """Returns the prediction of a decision, by the default rule without a threshold applied."""
    if RULES[decision.rule].ranks:
        decision = replace(decision, long_threshold=0.0, short_threshold=0.0)
    return decide(example, scores, decision).prediction


def tell_yes_from_no(
    separations: Sequence[tuple[float, bool]],
    decision: DecisionConfig,
) -> tuple[float, bool]:
    """Returns how well the model tells yes from no, and whether it then says them.

    A fitted decision changes that only where the area under the ROC curve is on the other side of
    ``YES_NO_AUC`` beyond chance, by its standard error without a separation (Mann and Whitney).
    """
    odds = [one for one, _ in separations]
    is_yes = [one for _, one in separations]
    auc = area_under_roc(odds, is_yes)
    if is_fitted(decision):
        pairs = sum(is_yes) * (len(is_yes) - sum(is_yes))
        error = math.sqrt((len(is_yes) + 1) / (12 * pairs)) if pairs else math.inf
        if abs(auc - YES_NO_AUC) <= STANDARD_ERRORS * error:
            return auc, decision.says_yes_no
    return auc, auc >= YES_NO_AUC


def are_others_better(
    gold: Gold,
    predictions: Predictions,
    decision: DecisionConfig,
    folds: Mapping[ExampleId, int],
) -> bool:
    """Returns whether other thresholds than those of a decision are better beyond chance.

    The others of each fold are the best ones of all other folds. The predictions are without a
    threshold applied.
    """
    by_others: Predictions = {}
    for fold in set(folds.values()):
        others = [key for key in folds if folds[key] != fold]
        if not others:
            return False
        best = best_thresholds(_of(gold, others), _of(predictions, others), decision)
        own = (key for key in folds if folds[key] == fold)
        by_others |= {key: accepted(predictions[key], best) for key in own}
    return is_better(by_others, _accepted(predictions, decision), gold)


def unseen_answers(
    scored: Iterable[tuple[Example, Scores]],
    decision: DecisionConfig,
    order: Mapping[ExampleId, int],
) -> Predictions:
    """Returns the answer to each question by a decision that was fitted without it.

    Those with gold have a number in ``order``. The decision of the questions with even numbers is
    fitted to those with odd ones, and the other way round, so that each half has questions
    whatever their ids are. All examples with their scores are iterated four times.
    """
    answers: Predictions = {}
    for half in (0, 1):

        def fold_in(key: ExampleId, half: int = half) -> int | None:
            number = order.get(key, 1 - half)
            return None if number % 2 != half else number // 2 % FOLDS

        tuned = tune_decision(scored, decision, fold_of=fold_in)
        for key, prediction in tuned.predictions.items():
            if fold_in(key) is None:
                answers[key] = accepted(prediction, tuned.decision)
    return answers


def accepted(prediction: Prediction, decision: DecisionConfig) -> Prediction:
    """Returns an answer without the parts whose scores are below the thresholds of a decision.

    Without its long answer a short answer is left out too, as by the default decision.
    """
    if prediction.long_score < decision.long_threshold:
        return replace(prediction, long=None, shorts=(), yes_no=YesNo.NONE)
    if prediction.short_score < decision.short_threshold:
        return replace(prediction, shorts=(), yes_no=YesNo.NONE)
    return prediction


def _accepted(
    predictions: Predictions,
    decision: DecisionConfig,
) -> Predictions:
    return {key: accepted(one, decision) for key, one in predictions.items()}


def _fit(
    folds: Iterable[Iterable[ChoiceSets]],
    decision: DecisionConfig,
) -> RankingWeights:
    """Returns the weights of a decision, fitted to all folds."""
    sets = [both for fold in folds for both in fold]
    blocks = [block for block, _ in sets if block]
    options = [option for _, option in sets if option]
    prior_questions = PRIOR_QUESTIONS if is_fitted(decision) else 0.0
    return fit_weights(blocks, options, decision.weights, prior_questions)


def best_thresholds(
    gold: Gold,
    predictions: Predictions,
    decision: DecisionConfig,
) -> DecisionConfig:
    """Returns a decision with the best threshold of long answers, and that of short ones with it.

    The predictions are without a threshold applied; one annotator is enough.
    """
    longs, _ = nq_eval.decisions(gold, predictions, ONE_ANNOTATOR)
    decision = replace(decision, long_threshold=best_threshold(longs), short_threshold=0.0)
    _, shorts = nq_eval.decisions(gold, _accepted(predictions, decision), ONE_ANNOTATOR)
    return replace(decision, short_threshold=best_threshold(shorts))


def best_threshold(decisions: Sequence[nq_eval.Decision]) -> float:
    """Returns the most plausible of the thresholds whose F1 is within ``SLACK`` of the best.

    That is the middle of the gap between scores nearest to half of the best F1, the best threshold
    for probabilities (Lipton, Elkan and Naryanaswamy 2014), since a few examples leave a plateau.
    Gaps are ``GAP`` wide where there are such, since close to a score the slightest rounding would
    change that answer.
    """
    points = nq_eval.sweep(decisions)
    best = nq_eval.best(points).f1
    gaps = [
        (above.threshold - below.threshold, (above.threshold + below.threshold) / 2)
        for above, below in itertools.pairwise(points)
        if above.f1 >= best - SLACK
    ]
    if not gaps:
        return points[0].threshold
    enough = min(GAP, max(gaps)[0])
    wide = [middle for width, middle in gaps if width >= enough]
    nearest: float = min(wide, key=lambda middle: abs(middle - best / 2))
    return round(nearest, DIGITS)


def measure(
    gold: Gold,
    predictions: Predictions,
    decision: DecisionConfig,
) -> dict[str, Any]:
    """Returns the figures of a decision, from predictions without a threshold applied.

    Scores are measured by how far they are from the share of right answers, and by how well they
    rank right answers.
    """
    if not RULES[decision.rule].ranks:
        metrics = nq_eval.score(gold, predictions, one_annotator=True)
        return {name: metrics[key] for name, key in GIVEN_F1.items()}
    metrics = nq_eval.score(gold, _accepted(predictions, decision), one_annotator=True)
    best = nq_eval.score(gold, predictions, one_annotator=True)
    figures = {
        "examples": len(predictions),
        "micro_f1": metrics["micro_f1"],
        "micro_f1_best": best["micro_f1_best"],
    }
    for name in ("long", "short"):
        figures[f"{name}_f1"] = metrics[f"{name}-answer-f1"]
        figures[f"{name}_f1_best"] = best[f"{name}-best-threshold-f1"]
    decisions = nq_eval.decisions(gold, predictions, one_annotator=True)
    for name, of_name in zip(("long", "short"), decisions, strict=True):
        scores = [d.score for d in of_name if d.predicted]
        correct = [d.correct for d in of_name if d.predicted]
        figures[f"{name}_calibration_error"] = expected_calibration_error(scores, correct)
        figures[f"{name}_auc"] = area_under_roc(scores, correct)
    return figures
