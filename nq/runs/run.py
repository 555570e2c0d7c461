"""A run: files of questions in; predictions, metrics and an MLflow run out."""

import contextlib
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nq import storage, tracking
from nq.config import TrackingConfig
from nq.progress import reporting
from nq.questions import Questions, mention_unnamed_pages
from nq.runs import record
from nq.runs.beam_run import BeamExecutor
from nq.runs.folder import RUN, RunFolder, check_output
from nq.runs.job import Job
from nq.runs.measure import SCORE, Clock, OnPhase
from nq.runs.result import Result
from nq.runs.scoring import Executor, LocalExecutor, RunProgress


def run(
    job: Job | str | Path | Iterable[str | Path],
    *,
    track: TrackingConfig | None = None,
    progress: RunProgress | None = None,
    table_rows: int = 0,
    on_phase: OnPhase | None = None,
    **settings: Any,
) -> Result:
    """Answers all questions of a job and writes the answers, their scores and the metrics.

    An interrupted run continues where it stopped when an equal job is run again, and then gives
    the same predictions. One of a runner of Beam begins again.

    Args:
        job: what to answer and how, or files of questions.
        track: where MLflow records the run; ``None`` to record nothing.
        progress: receives completed windows, one call at a time, perhaps in other threads.
        table_rows: how many rows of the table of answers the result has.
        on_phase: receives what goes on, in words, such as "loading the model". Without this and
            ``progress`` a bar shows both on a terminal and, with ipywidgets, in a notebook.
        settings: fields of ``nq.Job``, such as ``profile``; they replace those of a job.

    Returns:
        The folder of the run, its metrics and times.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: an input file as a whole, or the model, cannot be used.
        Error: another run writes to the folder, or it holds files of others or an input; a package
            is missing; profile and decision rule do not fit together; or the model changed.
    """
    if not isinstance(job, Job):
        job = Job(job, **settings)
    elif settings:
        job = replace(job, **settings)
    with tracking.Run(track) as tracked:
        return answer(job, tracked, progress, table_rows, on_phase)


def answer(
    job: Job,
    tracked: tracking.Run,
    progress: RunProgress | None = None,
    table_rows: int = 0,
    on_phase: OnPhase | None = None,
) -> Result:
    """Does what ``run`` does, and records it in a run of MLflow that is opened when needed."""
    executor = executor_of(job)
    if job.beam is None:
        job.profile.require()
    with contextlib.ExitStack() as stack:
        report, phase = stack.enter_context(reporting(progress, on_phase, *executor.labels))
        clock = stack.enter_context(Clock(phase))
        files = executor.files(job)
        questions = stack.enter_context(Questions.open(job.files, job.pages, job.limit, files))
        mention_unnamed_pages(questions)
        job = replace(job, files=questions.files, pages=questions.pages)
        check_output(job)
        tracked.name = record.run_name(str(job.profile), job.model.name, job.files[0])
        folder = RunFolder.of(job, questions)
        stack.enter_context(storage.hold(folder.path, RUN, job.sources))
        result = _answer(executor, job, questions, folder, tracked, clock, report, table_rows)
        record.record(tracked, job, folder, result)
        if tracked.logs_model:
            result = replace(result, model_uri=record.log_model(tracked, job))
        return replace(result, how_to_open=tracked.how_to_open)


def executor_of(job: Job) -> Executor:
    """Returns how a job is answered."""
    return LocalExecutor() if job.beam is None else BeamExecutor(job.beam)


def _answer(
    executor: Executor,
    job: Job,
    questions: Questions,
    folder: RunFolder,
    tracked: tracking.Run,
    clock: Clock,
    progress: RunProgress,
    table_rows: int,
) -> Result:
    """Answers questions and writes the folder of the run, which is held."""
    request = job.request(questions)
    with executor.open_answers(job, request, folder, clock, progress) as run_answers:
        # only now, so that importing MLflow does not delay the loading of the model
        tracked.open(folder.mlflow_file, clock.started)
        evaluation, rows = folder.write(run_answers.answers(table_rows))
        clock.enter(SCORE)
        try:
            job.model.check_same()
        except Exception:  # else a later run would continue with scores of another model
            if run_answers.memo is not None:
                run_answers.memo.clear()
            raise
        totals = run_answers.totals()
        metrics = evaluation.metrics()
        measured = clock.finish(totals)
        tracked.ended = time.time()
        result = Result(
            folder=folder.path,
            profile=str(job.profile),
            totals=totals,
            measured=measured,
            examples=evaluation.examples,
            answered=evaluation.answered,
            without_gold=evaluation.without_gold,
            text_only=evaluation.text_only,
            metrics=metrics,
            verdicts=evaluation.verdicts,
            ended=tracked.ended,
            run_id=tracked.run_id,
            rows=tuple(rows),
            windows_bytes=run_answers.windows_bytes,
            instances=job.instances,
            threads=job.compute.threads,
            beam=run_answers.beam,
            advice=run_answers.advice,
        )
        folder.finish(result.to_dict(), run_answers.memo, job.keep_scores)
        return result
