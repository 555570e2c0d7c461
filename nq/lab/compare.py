"""Finished runs of the same questions against each other: answers, F1 and drift.

The drift of a window is the largest difference of nine of its logits: the best start, the best end,
start and end of [CLS], and the five answer types. Only windows that both runs computed count, since
pruning leaves some out, and of two models the reader reads what ranks best. Runs that kept no
scores, or whose windows are not the same, such as those of models with other tokenizers, have no
drift.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nq import storage
from nq.errors import Error
from nq.evaluation.evaluate import Evaluation, judge
from nq.evaluation.gate import Counts, Gate, f1_behind, question_counts, relative_loss
from nq.evaluation.official import places, token_spans
from nq.evaluation.text_match import normalize
from nq.formats.input_files import shown
from nq.lab.models import Judged
from nq.lab.page import Comparison, comparison_page
from nq.lab.rows import Row, row
from nq.questions import Questions
from nq.records import (
    READ,
    READER_WINDOW,
    Example,
    ExampleId,
    ExampleKey,
    FloatArray,
    IntArray,
    Prediction,
    Source,
)
from nq.report.page_data import Question, entries
from nq.runs.folder import COMPARISON_PAGE, RUN, FinishedRun
from nq.runs.job import Job
from nq.runs.record import quality
from nq.runs.score_store import ScoreStore
from nq.text import counted

MAX_CHANGES = 100
"""Questions with several answers that the page shows."""


class Answers:
    """The answers of runs to the same questions, by the labels of their rows.

    Args:
        runs: of the rows; all are compared with the first.
        sources: the examples that all have answered, each with its origin.
        judged: the answers by which each is judged, if not those of the run.
        by_text: whether answers with the same words are the same, wherever they are in the page.

    Attributes:
        evaluations: of each run.
        counts: those of each question with gold, by which F1 is compared (``nq.evaluation.gate``);
            empty without gold.
        changes: the first questions with several answers, for the page.

    Raises:
        Error: the runs are of different questions, or the data have moved or changed.
    """

    def __init__(
        self,
        runs: Mapping[str, FinishedRun],
        sources: Iterable[tuple[Source, Example]],
        judged: Mapping[str, Judged] | None = None,
        by_text: bool = False,
    ) -> None:
        self.runs = runs
        self.judged = judged or {}
        self.labels = list(runs)
        self.evaluations = {label: Evaluation() for label in runs}
        self.changes = list[dict[str, Any]]()
        self.n_questions = 0
        self._equal = {(one, other): 0 for one in runs for other in runs}
        answers: dict[str, Mapping[ExampleId, Prediction]] = {
            **{label: run.predictions for label, run in runs.items()},
            **{label: one.answers for label, one in self.judged.items()},
        }
        first = runs[self.labels[0]]
        for run in runs.values():
            if run.predictions.keys() != first.predictions.keys():
                folders = f"{run.path} and {first.path}"
                raise Error(f"{folders} answered different questions: give runs of the same data")
        words: dict[str, list[Counts]] = {label: [] for label in runs}
        for source, example in sources:
            given = {label: answers[label][example.example_id] for label in runs}
            self.n_questions += 1
            for label, answer in given.items():
                judgment = judge(example, answer)
                self.evaluations[label].add(judgment)
                if judgment.text is not None:
                    words[label].append((judgment.text.f1 / 2, 0, 1))
            keys = {label: _key(example, answer, by_text) for label, answer in given.items()}
            for one, other in self._equal:
                self._equal[one, other] += keys[one] == keys[other]
            if len({*keys.values()}) > 1 and len(self.changes) < MAX_CHANGES:
                self.changes.append(_change(source, example, given, keys))
        self.counts = words
        if gold := self.evaluations[self.labels[0]].gold:
            self.counts = {label: question_counts(gold, answers[label]) for label in runs}

    def changed(self, label: str) -> int:
        """Returns how many answers differ from those of the first run."""
        return self.n_questions - self._equal[self.labels[0], label]

    def gate(self, label: str, max_loss: float | None = None) -> Gate | None:
        """Returns the relative loss of a run against the first, ``None`` if there can be none.

        With ``max_loss`` it is a ``ValueError`` if there can be none.
        """
        try:
            return relative_loss(self.counts[label], self.counts[self.labels[0]], max_loss=max_loss)
        except ValueError:
            if max_loss is not None:
                raise
            return None

    def agreement(self) -> dict[str, list[float]]:
        """Returns the shares of equal answers of each row with all rows in order."""
        n = max(self.n_questions, 1)
        return {one: [self._equal[one, other] / n for other in self.labels] for one in self.labels}

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        """Returns rows with what is known of their answers."""
        first = rows[0]
        has_models = any(one.model for one in rows)
        result = list[Row]()
        for one in rows:
            values: dict[str, Any] = {
                "changed": self.changed(one.label),
                "against": first.label if first.name else first.model or first.profile,
            }
            if not has_models:
                gate = self.gate(one.label)
                values["loss"] = (gate.loss, gate.low) if gate else None
            if not self.judged and one is not first:
                values["max_drift"] = max_drift(self.runs[one.label], self.runs[first.label])
            if judged := self.judged.get(one.label):
                values["fitted"] = judged.fitted
                values["decision"] = judged.decision
                values["judged"] = quality(self.evaluations[one.label].metrics())
            result.append(replace(one, **values))
        if (has_models or first.name) and self.counts[first.label]:
            best = self.counts[max(result, key=lambda one: one.f1 or 0.0).label]
            behind = [f1_behind(self.counts[one.label], best) for one in result]
            result = [replace(one, behind=b) for one, b in zip(result, behind, strict=True)]
        return result


def compare_runs(
    folders: Sequence[Path],
    output: Path | None = None,
    files: Sequence[str] = (),
    pages: str | Path | None = None,
) -> Comparison:
    """Compares finished runs of the same questions with the first, and writes a page of them.

    Args:
        folders: of two runs or more.
        output: the page, by default one in the folder of the first run.
        files, pages: the new places of the data and their pages.

    Raises:
        Error: a folder has no finished run or is given twice, the runs are of different data, or
            these have changed.
    """
    runs = list[FinishedRun]()
    for folder in folders:
        run = FinishedRun(folder, files, check=not runs, pages=pages)
        if runs and not run.has_read(runs[0].questions):
            raise Error(
                f"{runs[0].path} and {folder} answered different data: give runs of the same"
            )
        runs.append(run)
    first = runs[0]
    output = output or first.path / COMPARISON_PAGE
    rows, answers = _rows(runs, first)
    storage.check_output_file(output, sources_of(runs, COMPARISON_PAGE), storage.PAGE_MARK)
    result = Comparison(rows, output)
    title = f"{counted(len(runs), 'run')} on {Path(shown(first.job.files[0])).name}"
    about = [counted(answers.n_questions, "question"), *sorted({row.machine for row in rows})]
    page = comparison_page(result, title, about, answers.changes, answers.agreement())
    with storage.hold_marked(output.parent), storage.atomic_write(output) as file:
        file.write(page)
    return result


def compare_two(run: FinishedRun, other: FinishedRun, max_loss: float | None = None) -> Comparison:
    """Compares a run with another one of the same questions; the row of the other is the last.

    Only the data of the run are read, not those of the other, which may be gone.

    With ``max_loss``, the share of the other's micro-F1 that may be lost, the gate has a verdict;
    it is a ``ValueError`` if there can be none.
    """
    rows, answers = _rows([other, run], run)
    gate = answers.gate(rows[1].label, max_loss)
    return Comparison(rows[::-1], n_questions=answers.n_questions, gate=gate)


def _rows(runs: Sequence[FinishedRun], with_data: FinishedRun) -> tuple[list[Row], Answers]:
    """Returns the rows of runs, which are compared with the first; one has the data at hand."""
    models = [run.description["models"] for run in runs]  # a tuned copy is another model, too
    for number, run in enumerate(runs):
        if any(run.path.samefile(one.path) for one in runs[:number]):
            raise Error(f"{run.path} is given twice: give each run once")
    has_models = any(one != models[0] for one in models)
    has_sizes = has_models or len({run.job.model.windows for run in runs}) > 1
    rows = list[Row]()
    for run in runs:
        one = row(
            run.metrics,
            name=shown(str(run.path)),
            model=run.job.model.name if has_models else "",
            quality=quality(run.metrics["metrics"]),
        )
        if has_sizes and one.predict_s:
            one = replace(one, questions_per_s=len(run.predictions) / one.predict_s)
        rows.append(one)
    by_label = {one.label: run for one, run in zip(rows, runs, strict=True)}
    answers = Answers(by_label, with_data.sources(), by_text=has_models)
    return answers.rows(rows), answers


def open_other(
    folder: Path, job: Job, questions: Questions, max_loss: float | None = None
) -> FinishedRun:
    """Returns the run with which that of a job will be compared; checks that it can be.

    Raises:
        Error: there is no finished run in the folder, or it answered other questions, or it has no
            F1 to which a loss would be relative.
    """
    other = FinishedRun(folder, check=False)
    if job.output is not None and job.output.resolve() == folder.resolve():
        raise Error(f"{folder} is the run to compare with: give another --output")
    if not other.has_read(questions):
        names = ", ".join(map(shown, questions.files))
        raise Error(f"{folder} answered other data than {names}: give both the same data")
    limits = [limit or math.inf for limit in (job.limit, other.job.limit)]
    if limits[0] != limits[1] and min(limits) <= len(other.predictions):
        answered = f"{folder} answered {len(other.predictions)} questions under another --limit"
        raise Error(f"{answered}: give both runs the same limit")
    if max_loss is not None and not other.metrics["metrics"].get("micro_f1"):
        problem = f"{folder} has no micro-F1 above 0, to which a loss would be relative"
        raise Error(f"{problem}: give another run, or leave out --max-loss")
    return other


def sources_of(runs: Sequence[FinishedRun], page: str) -> list[str | Path]:
    """Returns the files that a page of runs must not replace: all of theirs but such a page."""
    sources = list[str | Path]()
    for run in runs:
        sources += run.job.files
        sources += [path for path in storage.own_paths(run.path, RUN) if path.name != page]
    return sources


def _key(example: Example, prediction: Prediction, by_text: bool) -> Hashable:
    """Returns a value that is equal for equal answers, by their words or by their places."""
    text = example.short_answer(token_spans(prediction.shorts), prediction.yes_no)
    if by_text and (words := normalize(text)):
        return words
    return places(prediction)


def _change(
    source: Source,
    example: Example,
    predictions: Mapping[str, Prediction],
    keys: Mapping[str, Hashable],
) -> dict[str, Any]:
    """Returns a question, the answer of each row with the number of its group, and gold."""
    given = dict[str, Any]()
    groups = list(dict.fromkeys(keys.values()))
    for name, prediction in predictions.items():
        row, details = entries(Question(example, source, prediction), [], 0)
        given[name] = details["given"] | {"outcome": row["o"][0], "group": groups.index(keys[name])}
    gold = list[str](example.answers or ())
    gold += [text for one in details["gold"] if (text := one["s"] or one["l"])]
    texts = list(dict.fromkeys(gold)) or (["(no answer)"] if details["gold"] else [])
    return {"question": example.question, "answers": given, "gold": texts}


def max_drift(run: FinishedRun, other: FinishedRun) -> float | None:
    """Returns the largest drift of a window; ``None`` if none can be compared."""
    ours = run.scores
    others = other.scores
    if ours is None or others is None or _windows(run) != _windows(other):
        return None
    largest = list[float]()
    for key in ours:
        (windows, logits), (other_windows, other_logits) = _logits(ours, key), _logits(others, key)
        _, rows, other_rows = np.intersect1d(windows, other_windows, return_indices=True)
        if len(rows):
            largest.append(float(np.abs(logits[rows] - other_logits[other_rows]).max()))
    return max(largest, default=None)


def _windows(run: FinishedRun) -> list[Any]:
    """Returns the values that identify the windows and positions that a run's models scored."""
    job = run.description["job"]
    read = run.read
    of_reader = [one["windows"] for one in job["models"][1:]]
    tokenizers = [one.get("tokenizer") for one in run.description["models"][1:]]
    return [read["tokenizer"], read["windows"], job["decision"]["rule"], of_reader, tokenizers]


def _logits(store: ScoreStore, key: ExampleKey) -> tuple[IntArray, FloatArray]:
    """Returns the computed windows of an example, and the nine logits of each, ``[W, 9]``.

    Windows of the reader of two models have negative numbers.
    """
    columns = store.columns(key)
    number = columns["window_ids"][:, 0].astype(np.int64)
    second = columns.get(READER_WINDOW, np.full(len(number), -1))
    best = [columns["start_logit"][:, :1], columns["end_logit"][:, :1]]
    logits = np.concatenate([columns["cls_logit"], columns["type_logits"], *best], axis=1)
    computed = columns.get(READ, np.ones(len(number), np.bool_))  # the others were pruned
    return np.where(second < 0, number, -1 - second)[computed], logits[computed]
