"""Finished runs of the same questions against each other: answers, F1 and their rows."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nq import storage
from nq.comparison.models import Judged
from nq.comparison.page import Comparison, comparison_page
from nq.comparison.verdict import advice
from nq.errors import Error
from nq.evaluation.evaluate import Evaluation, judge_label
from nq.evaluation.gate import Counts, Parity, f1_behind, question_counts
from nq.evaluation.labels import Label
from nq.evaluation.text_match import normalize
from nq.formats.input_files import shown
from nq.records import Example, Source, YesNo
from nq.report.comparison import ComparisonRow, row
from nq.report.page_data import Question, entries
from nq.runs import parity
from nq.runs.folder import COMPARISON_PAGE, RUN, FinishedRun
from nq.runs.record import quality
from nq.text import counted

MAX_CHANGES = 100
"""Questions with several answers that the page shows."""


class ComparedRuns:
    """Runs of the same questions, by the labels of their rows; all are compared with the first.

    Args:
        runs: of the rows.
        judged: the answers by which each is judged, if not those of the run.
        by_text: whether answers with the same words are the same, wherever they are in the page.

    Attributes:
        parities: how each run differs from the first.
        counts: those of each question with gold, by which F1 is compared (``nq.evaluation.gate``);
            empty without gold.
        changes: the first questions with several answers, for the page.

    Raises:
        Error: the runs are of different questions, or the data have moved or changed.
    """

    def __init__(
        self,
        runs: Mapping[str, FinishedRun],
        judged: Mapping[str, Judged],
        by_text: bool,
    ) -> None:
        self.evaluations = {label: Evaluation() for label in runs}
        self.judged = judged
        self.changes, self.n_questions = list[dict[str, Any]](), 0
        self._same = {(one, other): 0 for one in runs for other in runs}
        runs = {
            label: run.with_answers(judged[label].answers) if label in judged else run
            for label, run in runs.items()
        }
        words: dict[str, list[Counts]] = {label: [] for label in runs}
        first = next(iter(runs))
        for run in runs.values():
            parity.check_same_questions(run, runs[first])
        for source, example in runs[first].sources():
            labels = {label: run.predictions[example.example_id] for label, run in runs.items()}
            self.n_questions += 1
            for label, given in labels.items():
                judgment = judge_label(example, given)
                self.evaluations[label].add(judgment)
                if judgment.text is not None:
                    words[label].append((judgment.text.f1 / 2, 0, 1))
            keys = {label: _key(example, given, by_text) for label, given in labels.items()}
            for pair in self._same:
                self._same[pair] += keys[pair[0]] == keys[pair[1]]
            if len({*keys.values()}) > 1 and len(self.changes) < MAX_CHANGES:
                self.changes.append(_change(source, example, labels, keys))
        self.counts, self.parities = words, dict[str, Parity]()
        if gold := self.evaluations[first].gold:
            self.counts = {
                label: question_counts(gold, run.predictions) for label, run in runs.items()
            }
        for label, run in runs.items():
            counts = self.counts[label], self.counts[first]
            changed = self.n_questions - self._same[first, label]
            difference = parity.compare(run, runs[first], counts)
            self.parities[label] = replace(difference, changed=changed)

    def agreement(self) -> dict[str, list[float]]:
        """Returns the shares of equal answers of each row with all rows in order."""
        labels, n = list(self.parities), max(self.n_questions, 1)
        return {one: [self._same[one, other] / n for other in labels] for one in labels}


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
        if any(run.path.samefile(one.path) for one in runs):
            raise Error(f"{folder} is given twice: give each run once")
        if runs and not run.has_read(runs[0].questions):
            raise Error(
                f"{runs[0].path} and {folder} answered different data: give runs of the same"
            )
        runs.append(run)
    first = runs[0]
    output = output or first.path / COMPARISON_PAGE
    sources = list[str | Path](first.job.files)
    for run in runs:
        own = storage.own_paths(run.path, RUN)
        sources += [path for path in own if path.name != COMPARISON_PAGE]
    storage.check_output_file(output, sources, storage.PAGE_MARK)
    models = first.description["models"]  # a tuned copy is another model, too
    has_models = any(run.description["models"] != models for run in runs)
    has_sizes = has_models or len({run.job.model.windows for run in runs}) > 1
    rows = [
        row(
            run.metrics,
            name=str(folder),
            model=run.job.model.name if has_models else "",
            quality=quality(run.metrics["metrics"]),
        )
        for folder, run in zip(folders, runs, strict=True)
    ]
    if has_sizes:
        rows = [
            replace(one, questions_per_s=one.predict_s and len(first.predictions) / one.predict_s)
            for one in rows
        ]
    by_label = {one.label: run for one, run in zip(rows, runs, strict=True)}
    compared = ComparedRuns(by_label, {}, by_text=has_models)
    result = Comparison(compared_rows(rows, compared), output)
    title = f"{counted(len(runs), 'run')} on {Path(shown(first.job.files[0])).name}"
    about = [counted(compared.n_questions, "question"), *sorted({row.machine for row in rows})]
    _, reason = advice(result)
    page = comparison_page(result, title, reason, about, compared.changes, compared.agreement())
    with storage.hold_marked(output.parent), storage.atomic_write(output) as file:
        file.write(page)
    return result


def compared_rows(rows: Sequence[ComparisonRow], compared: ComparedRuns) -> list[ComparisonRow]:
    """Returns rows with what ``compared`` says of the answers of each.

    Those of ``nq compare`` are sorted, the fastest first; finished runs stay in their order.
    """
    has_models = any(row.model for row in rows)
    result = list[ComparisonRow]()
    for one in rows:
        label, difference = one.label, compared.parities[one.label]
        gate = difference.gate
        compared_row = replace(
            one,
            changed=difference.changed,
            max_drift=None if has_models or one is rows[0] else difference.max_drift,
            loss=(gate.loss, gate.low) if gate and not has_models else None,
            against=rows[0].name or rows[0].model or rows[0].profile,
        )
        if has_models and label in compared.judged:
            compared_row = replace(
                compared_row,
                fitted=compared.judged[label].fitted,
                decision=compared.judged[label].decision,
                judged=quality(compared.evaluations[label].metrics()),
            )
        result.append(compared_row)
    is_judged = has_models or rows[0].name
    if is_judged and compared.counts[rows[0].label]:
        best = compared.counts[max(result, key=lambda one: one.f1 or 0.0).label]
        for number, one in enumerate(result):
            result[number] = replace(one, behind=f1_behind(compared.counts[one.label], best))
    if rows[0].name:
        return result
    return sorted(result, key=lambda one: -(one.questions_per_s or one.windows_per_s or 0.0))


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
