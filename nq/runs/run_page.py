"""Makes the page of a finished run: its questions, figures and errors."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from nq import storage
from nq.config import ALL_CONTEXTS
from nq.errors import Error
from nq.evaluation.evaluate import example_labels
from nq.evaluation.gate import Parity
from nq.evaluation.nq_eval import Gold, decisions_of_one
from nq.formats.input_files import shown
from nq.inference.scorer import no_progress
from nq.postprocess.spans import pairs
from nq.preprocess.contexts import contexts
from nq.preprocess.features import features
from nq.records import Example, Source
from nq.report.judgments import STAGES, Case, Stage, StageOutputs, judgments, traits
from nq.report.page import MAX_QUESTIONS, Report, RunView, write_page
from nq.report.page_data import Question
from nq.runs import parity
from nq.runs.folder import REPORT, RUN, FinishedRun
from nq.runs.scoring import RunProgress


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
    output, sources = output or folder / REPORT, list[str | Path]()
    for one in (run, other) if other else (run,):
        parity.check_same_questions(run, one)
        own = (path for path in storage.own_paths(one.path, RUN) if path.name != REPORT)
        sources += [*one.job.files, *own]
    storage.check_output_file(output, sources, storage.PAGE_MARK)
    _ = run.tokenizer  # raises before the first question
    decision = run.job.model.decision
    thresholds = {"long": decision.long_threshold, "short": decision.short_threshold}
    view = RunView(
        description=_description(run, other),
        metrics=run.metrics,
        stages=[s for s in STAGES if run.scores is not None or s is not Stage.POSITIONS],
        thresholds=thresholds if decision.rule == "default" else {},
        other=other.metrics if other else None,
        folders=(str(folder), str(other.path) if other else ""),
        compare=partial(_compare, run, other) if other else None,
    )
    questions = _questions(run, other, progress)
    with storage.hold_marked(output.parent):
        return write_page(output, questions, len(run.predictions), view)


def _compare(run: FinishedRun, other: FinishedRun, gold: Gold) -> Parity:
    """Compares two runs, with the limit of the loss under which the run was compared before."""
    earlier, max_loss = run.metrics.get("parity"), None
    if earlier and earlier["against"] == parity.name_of(other) and "gate" in earlier:
        max_loss = earlier["gate"]["max_loss"]
    return parity.compare_two(run, other, gold, max_loss)


def _questions(
    run: FinishedRun, other: FinishedRun | None, progress: RunProgress
) -> Iterator[Question]:
    """Yields the questions of a run; an n-best file has the order of the examples."""
    lines = run.n_best_lines()
    line = next(lines, None)
    for source, example in run.sources():
        example_id, n_best = example.example_id, None
        if line is not None and str(line.get("example_id")) == str(example_id):
            n_best, line = line, next(lines, None)
        yield Question(
            example,
            source,
            run.predictions[example_id],
            other=other.predictions[example_id] if other else None,
            n_best=n_best,
            case=_case(example, source, run) if example_labels(example) else None,
        )
        progress(1, len(run.predictions))


def _case(example: Example, source: Source, run: FinishedRun) -> Case:
    config, label = run.job.model.windows, run.predictions[example.example_id]
    all_contexts = contexts(example, replace(config, max_contexts=ALL_CONTEXTS))
    read = contexts(example, config)
    gold = example_labels(example)
    long, short = decisions = decisions_of_one(gold, label)
    stages = StageOutputs(read)
    if any(decision.has_gold and not decision.correct for decision in decisions):
        stages = StageOutputs(
            read,
            features(example, run.tokenizer, config).token_map,
            pairs(run.scores[source.key]) if run.scores is not None else None,
        )
    values = traits(example, long.has_gold, short.has_gold, all_contexts, len(read))
    return Case(values, judgments(example, decisions, stages), gold)


def _description(run: FinishedRun, other: FinishedRun | None) -> dict[str, str]:
    """Returns the description of the run that the page shows."""
    job, metrics = run.job, run.metrics
    settings = job.model.decision.to_dict().items()
    decision = (f"{name} {value}" for name, value in settings if not isinstance(value, dict))
    return {
        "profile": f"{job.profile} ({metrics['precision']} on {metrics['device']})",
        **({"against": parity.name_of(other)} if other else {}),
        "data": ", ".join(shown(Path(path).name) for path in job.files),
        "model": job.model.name,
        "decision": ", ".join(decision),
        "run": shown(str(run.path)),
    }
