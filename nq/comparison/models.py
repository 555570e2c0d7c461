"""The models of a comparison, and the decisions by which it tells how good they are."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nq import hub
from nq.errors import Error
from nq.evaluation.evaluate import Evaluation, example_labels, judge_label
from nq.evaluation.gate import is_better
from nq.evaluation.labels import Label
from nq.evaluation.nq_eval import Gold
from nq.evaluation.tuning import (
    FOLDS,
    MIN_TUNED,
    reads_default_scores,
    tune_decision,
    unseen_answers,
)
from nq.model.model import Model
from nq.model.registry import model_name
from nq.records import ExampleId
from nq.report.comparison import CHOSEN, FITTED, SHIPPED
from nq.runs.folder import FinishedRun
from nq.runs.record import quality
from nq.runs.tuning import save_decision, start_decision

log = logging.getLogger(__name__)

Answers = Mapping[ExampleId, Label]


@dataclass(frozen=True)
class Entrant:
    """A model that is compared; without a name where profiles of it alone are compared."""

    name: str
    model: Model

    @property
    def options(self) -> list[str]:
        """The options of ``nq answer`` that name it, one of the hub with its commit."""
        return ["--model", hub.name_of(self.model.folder) or str(self.model.folder.absolute())]


def find_entrants(models: Sequence[str | Path | None], have_names: bool) -> list[Entrant]:
    """Finds and checks models, in milliseconds where they are on this machine.

    ``have_names`` tells whether models are compared, and not profiles of the only one. It is an
    ``Error`` if one is given twice.
    """
    opened, known = list[Model](), dict[Any, str | Path | None]()
    for given in models:
        model = Model.open(given)
        opened.append(model)
        digests = tuple(one.digest for one in model.parts)
        key = digests, model.windows, model.decision
        if key in known:
            raise Error(f"{known[key]} and {given} are the same model: give each model once")
        known[key] = given
    short = list(map(_short_name, models))
    names = [n if short.count(n) == 1 else str(one) for n, one in zip(short, models, strict=True)]
    return [Entrant(n if have_names else "", one) for n, one in zip(names, opened, strict=True)]


def _short_name(given: str | Path | None) -> str:
    """Returns the name of the model in a folder; other texts as they were given."""
    if given and Path(given).is_dir():
        return model_name(Path(given).absolute())
    return str(given)


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
    unseen, evaluation = unseen_answers(run, start_decision(run.job.model), order), Evaluation()
    for _, example in run.sources():
        evaluation.add(judge_label(example, unseen[example.example_id]))
    is_taken = decisions == FITTED or is_better(unseen, run.predictions, gold)
    name, answers = (FITTED, unseen) if is_taken else (SHIPPED, run.predictions)
    return Judged(name, answers, quality(evaluation.metrics()))


def save_judged(run: FinishedRun, judged: Judged, output: str | Path) -> None:
    """Writes a copy of the model of a run, with the decision by which the model is judged.

    That is its own, or one that is fitted to all questions with gold.
    """
    model, folds = run.job.model, {key: n % FOLDS for n, key in enumerate(_gold(run))}
    decision, which = model.decision, "the decision that it has"
    if judged.decision == FITTED:
        decision = tune_decision(run, start_decision(model), folds.get).decision
        which = "a decision that is fitted to all questions"
    log.info("%s is in %s, with %s", model.name, save_decision(model, decision, output), which)


def _gold(run: FinishedRun) -> Gold:
    """Returns the gold of the annotated questions of a run, in their order."""
    examples = (example for _, example in run.sources())
    return {one.example_id: labels for one in examples if (labels := example_labels(one))}
