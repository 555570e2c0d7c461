"""The models of a comparison, and the answers by which it tells how good they are."""

import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nq import hub
from nq.errors import Error
from nq.evaluation.evaluate import Evaluation, example_labels, judge_label
from nq.evaluation.gate import Counts, f1_behind, question_counts
from nq.evaluation.labels import Label
from nq.evaluation.nq_eval import Gold
from nq.evaluation.text_match import normalize
from nq.evaluation.tuning import FOLDS, tune_decision, unseen_answers
from nq.model.model import Model
from nq.postprocess.decision import RULES
from nq.records import Example, ExampleId, Source, YesNo
from nq.report.comparison import CHOSEN, FITTED, MIB, SHIPPED
from nq.report.page_data import Question, entries
from nq.runs.folder import FinishedRun
from nq.runs.record import quality
from nq.runs.tuning import save_decision, start_decision

log = logging.getLogger(__name__)

MIN_TUNED = 40
"""Questions with annotations that a decision needs, which is fitted to half of them."""
MAX_CHANGES = 100
"""Questions with several answers that the page shows."""

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
    short = [_name(model) for model in opened]
    names = [n if short.count(n) == 1 else str(one) for n, one in zip(short, models, strict=True)]
    return [Entrant(n if have_names else "", one) for n, one in zip(names, opened, strict=True)]


def _name(model: Model) -> str:
    return " with ".join(one.name.partition("@")[0] for one in model.models)


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
    rule, default = RULES[run.job.model.decision.rule], RULES["default"]
    is_readable = (rule.k, rule.text_only) == (default.k, default.text_only)
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


def is_better(answers: Answers, others: Answers, gold: Gold) -> bool:
    """Returns whether the micro-F1 of some answers is higher than that of others beyond chance.

    The interval of the difference (``f1_behind``) then lies above 0.
    """
    _, low, _ = f1_behind(question_counts(gold, others), question_counts(gold, answers))
    return low > 0


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
    return {one.example_id: example_labels(one) for _, one in run.sources() if one.annotations}


class ComparedAnswers:
    """The answers of each row to the same questions, by the labels of the rows.

    Args:
        runs: of the rows; the others are compared with the first.
        judged: the answers by which each is judged.
        by_text: whether answers with the same words are the same, wherever they are in the page.

    Attributes:
        changed: how many answers of each row differ from those of the first.
        counts: those of each question with gold, by which F1 is compared (``nq.evaluation.gate``);
            empty without gold.
        changes: the first questions with several answers, for the page.
    """

    def __init__(
        self,
        runs: Mapping[str, FinishedRun],
        judged: Mapping[str, Judged],
        by_text: bool,
    ) -> None:
        self.evaluations = {label: Evaluation() for label in runs}
        self.changed, self.changes = dict.fromkeys(runs, 0), list[dict[str, Any]]()
        same = {(one, other): 0 for one in runs for other in runs}
        answers = {label: one.answers for label, one in judged.items()}
        words: dict[str, list[Counts]] = {label: [] for label in runs}
        first, n_questions = next(iter(runs)), 0
        for source, example in runs[first].sources():
            labels = {label: given[example.example_id] for label, given in answers.items()}
            n_questions += 1
            for label, given in labels.items():
                judgment = judge_label(example, given)
                self.evaluations[label].add(judgment)
                if judgment.text is not None:
                    words[label].append((judgment.text.f1 / 2, 0, 1))
            keys = {label: _key(example, given, by_text) for label, given in labels.items()}
            for pair in same:
                same[pair] += keys[pair[0]] == keys[pair[1]]
            if len({*keys.values()}) > 1 and len(self.changes) < MAX_CHANGES:
                self.changes.append(_change(source, example, labels, keys))
        gold = {label: one.gold for label, one in self.evaluations.items()}
        self.counts = (
            words
            if not gold[first]
            else {label: question_counts(gold[label], answers[label]) for label in runs}
        )
        for label in runs:
            self.changed[label] = n_questions - same[first, label]
        self.n_questions, self._same = n_questions, same

    def agreement(self) -> dict[str, list[float]]:
        """Returns the shares of equal answers of each row with all rows in order."""
        labels, n = list(self.evaluations), max(self.n_questions, 1)
        return {one: [self._same[one, other] / n for other in labels] for one in labels}


def _key(example: Example, label: Label, by_text: bool) -> Hashable:
    """Returns a value that is equal for equal answers, by their words or by their places."""
    text = example.short_answer(label.short_tokens, YesNo(label.yes_no.upper()))
    if by_text and (words := normalize(text)):
        return words
    return label.long, label.yes_no, frozenset(label.short_spans)


def _change(
    source: Source,
    example: Example,
    labels: Mapping[str, Label],
    keys: Mapping[str, Hashable],
) -> dict[str, Any]:
    """Returns a question, the answer of each row with the number of its group, and gold."""
    given, gold = dict[str, Any](), list[str](example.answers or ())
    groups = list(dict.fromkeys(keys.values()))
    for name, label in labels.items():
        row, details = entries(Question(example, source, label), [], 0)
        given[name] = details["given"] | {"outcome": row["o"][0], "group": groups.index(keys[name])}
    gold += [text for one in details["gold"] if (text := one["s"] or one["l"])]
    texts = list(dict.fromkeys(gold)) or (["(no answer)"] if details["gold"] else [])
    return {"question": example.question, "answers": given, "gold": texts}
