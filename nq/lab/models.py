"""The models of a comparison, and the decisions by which it tells how good they are."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nq.errors import Error
from nq.evaluation.evaluate import Evaluation, example_gold, judge
from nq.evaluation.gate import is_better
from nq.evaluation.nq_eval import Gold
from nq.evaluation.tuning import (
    FOLDS,
    MIN_TUNED,
    reads_default_scores,
    tune_decision,
    unseen_answers,
)
from nq.lab.rows import CHOSEN, FITTED, SHIPPED
from nq.model.model import Model
from nq.model.registry import model_name
from nq.records import ExampleId, Prediction
from nq.runs.folder import FinishedRun
from nq.runs.record import quality
from nq.runs.tuning import save_decision, start_decision

log = logging.getLogger(__name__)

Answers = Mapping[ExampleId, Prediction]


def name_models(models: Iterable[tuple[str | Path, Model]]) -> dict[str, Model]:
    """Returns opened models by short names: as they were given, of a folder its last component.

    ``Error`` if one is given twice.
    """
    models = list(models)
    for number, (given, model) in enumerate(models):
        for earlier, other in models[:number]:
            if _digests(model) == _digests(other):
                text = f"{earlier} and {given} are the same model"
                raise Error(f"{text}: give each model once")
    short = [
        model_name(Path(given).absolute()) if Path(given).is_dir() else str(given)
        for given, _ in models
    ]
    return {
        name if short.count(name) == 1 else str(given): model
        for name, (given, model) in zip(short, models, strict=True)
    }


def _digests(model: Model) -> tuple[object, ...]:
    return *(one.digest for one in model.parts), model.windows, model.decision


@dataclass(frozen=True)
class Judged:
    """The answers by which a model is judged.

    Args:
        decision: which decision gives them, ``SHIPPED`` or ``FITTED``.
        answers: to all questions of the run.
        fitted: the metrics of fitted decisions; empty if none was fitted.
    """

    decision: str
    answers: Answers
    fitted: Mapping[str, float]


def judged_answers(run: FinishedRun, decisions: str = CHOSEN) -> Judged:
    """Returns the answers by which the model of a run is judged.

    A decision is fitted to each half of the questions with gold, and answers the other half. These
    answers count if they are better than those of the shipped decision (``is_better``), or if
    ``decisions`` is ``FITTED``. So those that count are never worse beyond chance than the others.
    That gold has a part in the choice makes an F1 too high by a tenth of the standard error of the
    difference at most, the mean of its upper 5 %.

    The shipped decision counts too if ``decisions`` is ``SHIPPED``, if fewer than ``MIN_TUNED``
    questions have gold, or if the default rule cannot read the scores of the run.
    """
    shipped = Judged(SHIPPED, run.predictions, {})
    is_readable = reads_default_scores(run.job.model.decision)
    if decisions == SHIPPED or run.scores is None or not is_readable:
        return shipped
    gold = _gold(run)
    if len(gold) < MIN_TUNED:
        return shipped
    order = {key: number for number, key in enumerate(gold)}
    unseen = unseen_answers(run, start_decision(run.job.model), order)
    evaluation = Evaluation()
    for _, example in run.sources():
        evaluation.add(judge(example, unseen[example.example_id]))
    fitted = quality(evaluation.metrics())
    if decisions == FITTED or is_better(unseen, run.predictions, gold):
        return Judged(FITTED, unseen, fitted)
    return Judged(SHIPPED, run.predictions, fitted)


def save_judged(run: FinishedRun, judged: Judged, output: str | Path) -> None:
    """Writes a copy of the model of a run, with the decision by which the model is judged.

    That is its own, or one that is fitted to all questions with gold.
    """
    model = run.job.model
    decision = model.decision
    which = "the decision that it has"
    if judged.decision == FITTED:
        folds = {key: number % FOLDS for number, key in enumerate(_gold(run))}
        decision = tune_decision(run, start_decision(model), folds.get).decision
        which = "a decision that is fitted to all questions"
    log.info("%s is in %s, with %s", model.name, save_decision(model, decision, output), which)


def _gold(run: FinishedRun) -> Gold:
    """Returns the gold of the annotated questions of a run, in their order."""
    examples = (example for _, example in run.sources())
    return {one.example_id: gold for one in examples if (gold := example_gold(one))}
