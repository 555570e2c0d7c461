"""The models of a comparison, and the decisions by which it tells how good they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nq import hub
from nq.config import DecisionConfig
from nq.errors import Error
from nq.evaluation.labels import Label
from nq.evaluation.tuning import FOLDS, tune_decision, unseen_answers
from nq.model.model import Model
from nq.postprocess.decision import RULES
from nq.records import ExampleId
from nq.report.comparison import MIB
from nq.runs.folder import FinishedRun
from nq.runs.tuning import start_decision

MIN_TUNED = 40
"""Questions with annotations that a decision needs, which is fitted to half of them."""

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

    @property
    def size_mb(self) -> float:
        """Size of the files of the model, and of the second one, in MiB."""
        files = (file for one in self.model.models for file in one.files.files)
        return sum(file.stat().st_size for file in files) / MIB


def find_entrants(models: Sequence[str | Path | None], have_names: bool) -> list[Entrant]:
    """Finds and checks models, in milliseconds where they are on this machine.

    ``have_names`` tells whether models are compared, and not profiles of the only one.

    Raises:
        Error, FileNotFoundError, ValueError: there is no such model, it answers no questions or is
            damaged, or it is given twice.
    """
    opened, known = list[Model](), dict[Any, str | Path | None]()
    for given in models:
        model = Model.open(given)
        opened.append(model)
        digests = tuple(one.digest for one in model.models)
        key = digests, model.windows, model.decision
        if key in known:
            raise Error(f"{known[key]} and {given} are the same model: give each model once")
        known[key] = given
    short = list(map(_short_name, models))
    names = [n if short.count(n) == 1 else str(one) for n, one in zip(short, models, strict=True)]
    return [Entrant(n if have_names else "", one) for n, one in zip(names, opened, strict=True)]


def _short_name(given: str | Path | None) -> str:
    """Returns the last component of a folder; other texts as they were given."""
    if given is None or not Path(given).is_dir():
        return str(given)
    return Path(given).absolute().name  # "." has no name of its own


def gold_order(run: FinishedRun) -> dict[ExampleId, int]:
    """Returns the annotated questions of a run, numbered in their order."""
    gold = (one.example_id for _, one in run.sources() if one.annotations)
    return {key: number for number, key in enumerate(gold)}


def fit_to_all(run: FinishedRun) -> DecisionConfig:
    """Returns a decision for the model of a run that is fitted to all of its questions."""
    order = gold_order(run)

    def fold_in(key: ExampleId) -> int | None:
        return order[key] % FOLDS if key in order else None

    return tune_decision(run, start_decision(run.job.model), fold_of=fold_in).decision


def unseen(run: FinishedRun, order: Mapping[ExampleId, int]) -> Answers | None:
    """Returns the answers of a run by decisions that were fitted without each of its questions.

    ``order`` numbers the questions with gold. ``None`` if the run has no scores that the default
    rule can read.
    """
    rule, default = RULES[run.job.model.decision.rule], RULES["default"]
    is_readable = (rule.k, rule.text_only) == (default.k, default.text_only)
    if run.scores is None or not is_readable:
        return None
    return unseen_answers(run, start_decision(run.job.model), order)
