"""Makes the report of a finished run: a page with its questions, figures and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nq import storage
from nq.errors import Error
from nq.evaluation.evaluate import gold_labels
from nq.evaluation.gate import Gate, question_counts, relative_loss
from nq.evaluation.labels import Label
from nq.evaluation.nq_eval import Decision, Gold
from nq.formats.streams import shown
from nq.records import Example, ExampleId, Source
from nq.report.analysis import Analysis, analyse
from nq.report.losses import STAGES, Case, Stage, judge
from nq.report.overview import kind_views, view
from nq.report.page import PageWriter, parts_folder, remove_parts
from nq.report.questions import Question, Scored
from nq.report.traits import SOURCE, TRAITS
from nq.runs.finished import FinishedRun, case, read_folder
from nq.runs.parity import same_answers
from nq.runs.result import REPORT

NO_DATA = "; the page lacks passages and gold answers"
Decisions = dict[str, list[Decision]]
Progress = Callable[[int, int], None]
"""Receives the questions that have just been completed, and how many there are."""


@dataclass(frozen=True)
class Report:
    """A written report.

    Args:
        paths: the page, and the folder of its parts if there are any.
        questions: number of questions.
        analysis: the error analysis; ``None`` without gold.
        changed: answers that differ from those of the other run; ``None`` without one.
        gate: the relative loss of micro-F1 against the other run, with the largest one that the
            run's own comparison accepted; ``None`` without another run or without gold.
        problems: what is missing in the page, one sentence each.
    """

    paths: tuple[Path, ...]
    questions: int
    analysis: Analysis | None
    changed: int | None
    gate: Gate | None
    problems: tuple[str, ...]


def no_progress(questions: int, total: int) -> None:
    """Ignores progress."""


def write_report(
    folder: Path,
    output: Path | None = None,
    against: Path | None = None,
    files: list[str] | None = None,
    model: Path | None = None,
    progress: Progress = no_progress,
) -> Report:
    """Writes the report of a finished run.

    Args:
        folder: of the run.
        output: the page; by default ``report.html`` in the folder.
        against: folder of another run of the same questions.
        files: the data files, if they were moved.
        model: the model folder, if it was moved.
        progress: receives completed questions.

    Raises:
        Error: there is no finished run, ``files`` or ``model`` are not those of the run, the two
            runs answered other questions, or a file of others is in the way.
        OSError: a file cannot be read or written.
        ValueError: the predictions are damaged.
    """
    run = read_folder(folder, files, model)
    if files:
        run.check_data()
    if model:
        _ = run.tokenizer  # is checked
    other = read_folder(against) if against else None
    if other:
        _check_questions(run, other)
    output = output or folder / REPORT
    _check_output(output, [run, *([other] if other else [])])
    return _ReportMaker(run, other, output, progress).make()


def remove_report(folder: Path) -> None:
    """Removes the report in the folder of a run."""
    (folder / REPORT).unlink(missing_ok=True)
    remove_parts(parts_folder(folder / REPORT))


def _check_questions(run: FinishedRun, other: FinishedRun) -> None:
    mine, theirs = run.predictions.keys(), other.predictions.keys()
    if mine != theirs:
        raise Error(
            f"{run.folder} and {other.folder} answered different questions ({len(mine)} and "
            f"{len(theirs)}, {len(mine & theirs)} of them in both): give two runs of the same data"
        )


def _check_output(output: Path, runs: Sequence[FinishedRun]) -> None:
    for run in runs:
        own = [path for path in storage.own_paths(run.folder, storage.RUN) if path.name != REPORT]
        storage.check_output_file(output, [*run.job.files, *own])
    parts = parts_folder(output)
    if parts.is_symlink() or (parts.exists() and not parts.is_dir()):
        raise Error(f"{parts} is in the place of the report's folder: give another --output")


class _ReportMaker:
    """Collects the questions of a run for its page.

    Args:
        run: the run.
        other: the run that it is compared with.
        output: the page.
        progress: receives completed questions.
    """

    def __init__(
        self, run: FinishedRun, other: FinishedRun | None, output: Path, progress: Progress
    ) -> None:
        self.run, self.other, self.progress = run, other, progress
        self.problems: list[str] = []
        self.cases: list[Case] = []
        self.gold: Gold = {}
        self.decisions: tuple[Decisions, Decisions] = (_no_decisions(), _no_decisions())
        self.changed = self.without_gold = 0
        self.writer = PageWriter(output, len(run.predictions), TRAITS)
        self.has_data = self._available(run.check_data, NO_DATA)
        self.tokenizer = run.tokenizer if self._tokenizer_available() else None

    def _tokenizer_available(self) -> bool:
        return self.has_data and self._available(lambda: self.run.tokenizer)

    def _available(self, read: Callable[[], object], effect: str = "") -> bool:
        """Returns whether something can be read; if not, reason and effect become a problem."""
        try:
            read()
        except (Error, OSError, ValueError) as error:
            self.problems.append(f"{error}{effect}")
            return False
        return True

    def make(self) -> Report:
        """Writes the page."""
        for question in self._questions():
            self.writer.add(question)
            self.progress(1, len(self.run.predictions))
        analysis, gate = self._analysis(), self._gate()
        changed = (self.changed, len(self.run.predictions)) if self.other else None
        paths = self.writer.write(self._view(analysis, changed, gate))
        return Report(
            tuple(paths),
            len(self.run.predictions),
            analysis,
            self.changed if self.other else None,
            gate,
            tuple(self.problems),
        )

    def _questions(self) -> Iterator[Question]:
        n_best = _Aligned(self.run.n_best_lines())
        if not self.has_data:
            for example_id in self.run.predictions:
                yield self._question(example_id, n_best.of(example_id))
            return
        sources = self.run.extra_field(SOURCE)
        for source, example in self.run.sources():
            key = (source.file_index, source.line)
            line = n_best.of(example.example_id)
            if line is None:
                line = self.run.decided_n_best(key, example)
            found = None
            if example.annotations:
                found = case(example, self.run, key, self.tokenizer, sources.get(key))
                self.cases.append(found)
                self.gold[example.example_id] = gold_labels(example)
            else:
                self.without_gold += 1
            yield self._question(example.example_id, line, example, source, found)

    def _question(
        self,
        example_id: ExampleId,
        n_best: Mapping[str, Any] | None,
        example: Example | None = None,
        source: Source | None = None,
        found: Case | None = None,
    ) -> Question:
        runs = [run.predictions[example_id] for run in (self.run, self.other) if run]
        mine, *other = [_scored(label, example) for label in runs]
        for scored, decisions in zip((mine, *other), self.decisions, strict=False):
            if scored.long and scored.short:
                decisions["long"].append(scored.long)
                decisions["short"].append(scored.short)
        changed = len(runs) > 1 and not same_answers(*runs)
        self.changed += changed
        return Question(
            example_id,
            mine,
            other[0] if other else None,
            changed,
            n_best,
            example,
            source,
            found,
        )

    def _analysis(self) -> Analysis | None:
        if not self.cases:
            return None
        known = {
            Stage.WINDOWS: self.tokenizer is not None,
            Stage.POSITIONS: self.run.scores is not None,
        }
        stages = [stage for stage in STAGES if known.get(stage, True)]
        return analyse(self.cases, self.without_gold, stages)

    def _gate(self) -> Gate | None:
        if not self.other or not self.gold:
            return None
        runs = (self.run.predictions, self.other.predictions)
        try:
            loss = relative_loss(*(question_counts(self.gold, answers) for answers in runs))
        except ValueError as error:
            self.problems.append(str(error))
            return None
        own = self.run.metrics.get("parity", {}).get("gate", {})
        return Gate(loss, own.get("max_loss"))

    def _view(
        self, analysis: Analysis | None, changed: tuple[int, int] | None, gate: Gate | None
    ) -> dict[str, Any]:
        decision = self.run.job.model.decision
        has_thresholds = decision.rule == "default"
        thresholds = {
            "long": decision.long_threshold if has_thresholds else None,
            "short": decision.short_threshold if has_thresholds else None,
        }
        mine, others = self.decisions
        return view(
            _description(self.run, self.other),
            self.run.metrics,
            self.other.metrics if self.other else None,
            analysis,
            kind_views(analysis, mine, others if self.other else {}, thresholds)
            if analysis
            else [],
            self.problems,
            changed,
            gate,
        )


def _no_decisions() -> Decisions:
    return {"long": [], "short": []}


def _scored(label: Label, example: Example | None) -> Scored:
    if example is None or not example.annotations:
        return Scored(label)
    return Scored(label, *judge(gold_labels(example), label))


class _Aligned:
    """The lines of an n-best file by id; they are in the order of the examples."""

    def __init__(self, lines: Iterator[dict[str, Any]]) -> None:
        self._lines = lines
        self._next = next(lines, None)

    def of(self, example_id: ExampleId) -> dict[str, Any] | None:
        """Returns the line of an example, ``None`` if it is not the next one."""
        line = self._next
        if line is None or str(line.get("example_id")) != str(example_id):
            return None
        self._next = next(self._lines, None)
        return line


def _description(run: FinishedRun, other: FinishedRun | None) -> dict[str, str]:
    """Returns the description of the run that the report shows."""
    job, metrics = run.job, run.metrics
    settings = job.model.decision.to_dict().items()
    decision = (f"{name} {value}" for name, value in settings if not isinstance(value, dict))
    device = f" ({metrics['precision']} on {metrics['device']})" if "device" in metrics else ""
    return {
        "profile": f"{job.profile}{device}",
        **({"against": f"{other.job.profile} in {shown(str(other.folder))}"} if other else {}),
        "data": ", ".join(shown(Path(path).name) for path in job.files),
        "model": job.model.folder.name,
        **({"second model": job.model.second.folder.name} if job.model.second else {}),
        "decision": ", ".join(decision),
        "run": shown(str(run.folder)),
    }
