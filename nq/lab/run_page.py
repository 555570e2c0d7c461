"""Makes the page of a finished run: its questions, figures and errors."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nq import storage
from nq.config import ALL_CONTEXTS
from nq.errors import Error
from nq.evaluation.evaluate import example_gold
from nq.evaluation.nq_eval import decisions_of_one
from nq.formats.input_files import shown
from nq.inference.scorer import no_progress
from nq.lab.compare import compare_two, sources_of
from nq.lab.page import Comparison
from nq.lab.rows import cells, row
from nq.postprocess.spans import pairs
from nq.preprocess.contexts import contexts
from nq.preprocess.features import features
from nq.records import Example, Source
from nq.report.analysis import Analysis
from nq.report.judgments import STAGES, Case, Stage, StageOutputs, judgments, traits
from nq.report.page import MAX_QUESTIONS, RunView, write_page
from nq.report.page_data import Question
from nq.runs.folder import REPORT, FinishedRun
from nq.runs.scoring import RunProgress


@dataclass(frozen=True)
class Report:
    """A written report; ``comparison`` is that with another run."""

    page: Path
    questions: int
    analysis: Analysis | None
    comparison: Comparison | None

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as JSON values."""
        values = self.comparison.to_dict() if self.comparison else {}
        return {
            **values,
            "page": str(self.page),
            "questions": self.questions,
            "analysis": self.analysis.to_dict() if self.analysis else None,
        }


def write_report(
    folder: Path,
    output: Path | None = None,
    against: Path | None = None,
    files: list[str] | None = None,
    model: Path | None = None,
    pages: str | Path | None = None,
    progress: RunProgress = no_progress,
) -> Report:
    """Writes the page of a finished run, by default in its folder; raises as ``FinishedRun``.

    The data, their ``pages`` and the model must be there, at their old places or as given.
    ``against`` is the folder of another run of the same questions, and ``progress`` receives the
    numbers of questions that have just been completed, and of all.
    """
    run = FinishedRun(folder, files or (), model, pages=pages)
    if len(run.predictions) > MAX_QUESTIONS:
        answered = f"{folder} answered {len(run.predictions)} questions"
        raise Error(f"{answered}, a page shows {MAX_QUESTIONS}: answer the first ones with --limit")
    other = FinishedRun(against, check=False) if against else None
    output = output or folder / REPORT
    sources = sources_of([run, other] if other else [run], REPORT)
    storage.check_output_file(output, sources, storage.PAGE_MARK)
    _ = run.tokenizer  # raises before the first question
    decision = run.job.model.decision
    thresholds = {"long": decision.long_threshold, "short": decision.short_threshold}
    comparison = compare_two(run, other) if other else None
    view = RunView(
        description=_description(run, comparison),
        metrics=run.metrics,
        stages=[s for s in STAGES if run.scores is not None or s is not Stage.POSITIONS],
        thresholds=thresholds if decision.rule == "default" else {},
        other=other.metrics if other else None,
        remarks=[one.note for one in comparison or [row(run.metrics)]],
        comparison=cells(comparison) if comparison else None,
        changed=comparison[0].changed if comparison else None,
        standing=comparison.standing if comparison else "",
        gate=comparison.gate if comparison else None,
    )
    questions = _questions(run, other, progress)
    with storage.hold_marked(output.parent):
        analysis = write_page(output, questions, len(run.predictions), view)
    return Report(output, len(run.predictions), analysis, comparison)


def _questions(
    run: FinishedRun, other: FinishedRun | None, progress: RunProgress
) -> Iterator[Question]:
    """Yields the questions of a run; an n-best file has the order of the examples."""
    lines = run.n_best_lines()
    line = next(lines, None)
    for source, example in run.sources():
        example_id = example.example_id
        n_best = None
        if line is not None and str(line.get("example_id")) == str(example_id):
            n_best = line
            line = next(lines, None)
        yield Question(
            example,
            source,
            run.predictions[example_id],
            other=other.predictions[example_id] if other else None,
            n_best=n_best,
            case=_case(example, source, run) if example_gold(example) else None,
        )
        progress(1, len(run.predictions))


def _case(example: Example, source: Source, run: FinishedRun) -> Case:
    config = run.job.model.windows
    all_contexts = contexts(example, replace(config, max_contexts=ALL_CONTEXTS))
    read = contexts(example, config)
    gold = example_gold(example)
    long, short = decisions = decisions_of_one(gold, run.predictions[example.example_id])
    stages = StageOutputs(read)
    if any(decision.has_gold and not decision.correct for decision in decisions):
        stages = StageOutputs(
            read,
            features(example, run.tokenizer, config).token_map,
            pairs(run.scores[source.key]) if run.scores is not None else None,
        )
    values = traits(example, long.has_gold, short.has_gold, all_contexts, len(read))
    return Case(values, judgments(example, decisions, stages), gold)


def _description(run: FinishedRun, comparison: Comparison | None) -> dict[str, str]:
    """Returns the description of the run that the page shows."""
    job = run.job
    metrics = run.metrics
    settings = job.model.decision.to_dict().items()
    decision = (f"{name} {value}" for name, value in settings if not isinstance(value, dict))
    return {
        "profile": f"{job.profile} ({metrics['precision']} on {metrics['device']})",
        **({"against": comparison[1].label} if comparison else {}),
        "data": ", ".join(shown(Path(path).name) for path in job.files),
        "model": job.model.name,
        "decision": ", ".join(decision),
        "run": shown(str(run.path)),
    }
