"""A run: files of questions in; predictions, metrics and an MLflow run out."""

import contextlib
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nq import storage, tracking
from nq.config import TrackingConfig
from nq.evaluation.nq_eval import Gold
from nq.memo import Memo
from nq.model.model import Model
from nq.progress import reporting
from nq.questions import Questions, mention_unnamed_pages
from nq.runs import parity, record
from nq.runs.beam_run import BeamExecutor
from nq.runs.folder import RUN, FinishedRun, RunFolder, check_output
from nq.runs.job import Job
from nq.runs.measure import SCORE, Clock, OnPhase
from nq.runs.profile_choice import with_profile
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
    executor = LocalExecutor() if job.beam is None else BeamExecutor(job.beam)
    with contextlib.ExitStack() as stack:
        report, phase = stack.enter_context(reporting(progress, on_phase, *executor.labels))
        clock = stack.enter_context(Clock(phase))
        files = executor.files(job)
        questions = stack.enter_context(Questions.open(job.files, job.pages, job.limit, files))
        mention_unnamed_pages(questions)
        job = replace(job, files=questions.files, pages=questions.pages)
        check_output(job)
        other = parity.open_other(job, questions)
        job, choice = with_profile(job, questions)
        name = record.run_name(str(job.profile), job.model.name, job.files[0])
        # it is opened later, or when there is something to record
        with tracking.Run(track, name) as tracked:
            folder, result, gold = _answer(
                executor, job, questions, tracked, clock, report, table_rows
            )
            record.record(tracked, job, folder, result)
            if track is not None and track.logs_model:
                result = replace(result, model_uri=record.log_model(tracked, job))
            if other is not None:
                finished = FinishedRun(result.folder, check=False)
                difference = parity.compare_two(finished, other, gold, job.max_loss)
                finished.add_parity(difference, job.sources)
                record.record_parity(tracked, difference, result.folder)
                result = replace(result, parity=difference)
            advice, how_to_open = choice or result.advice, tracked.how_to_open
            return replace(result, advice=advice, how_to_open=how_to_open)


def _answer(
    executor: Executor,
    job: Job,
    questions: Questions,
    tracked: tracking.Run,
    clock: Clock,
    progress: RunProgress,
    table_rows: int,
) -> tuple[RunFolder, Result, Gold]:
    """Answers questions and writes the folder of the run; returns it, its result and its gold."""
    request = job.request(questions)
    description = {"job": job.to_dict(), "request": request.description, "models": job.model.key}
    folder = RunFolder(job.folder(request), description)
    with (
        storage.hold(folder.path, RUN, job.sources),
        executor.open_answers(job, request, folder, clock, progress) as run_answers,
    ):
        # only now, so that importing MLflow does not delay the loading of the model
        tracked.open(folder.mlflow_file, clock.started)
        files = folder.write(run_answers.answers(table_rows), job.formats)
        clock.enter(SCORE)
        _check_model(job.model, run_answers.memo)
        totals, evaluation = run_answers.totals(), files.evaluation
        metrics = evaluation.metrics()
        measured, tracked.ended = clock.finish(totals), time.time()
        result = Result(
            folder=folder.path,
            profile=str(job.profile),
            totals=totals,
            measured=measured,
            examples=files.examples,
            answered=files.answered,
            without_gold=evaluation.without_gold,
            text_only=evaluation.text_only,
            metrics=metrics,
            verdicts=evaluation.verdicts,
            ended=tracked.ended,
            run_id=tracked.run_id,
            rows=tuple(files.rows),
            windows_bytes=run_answers.windows_bytes,
            instances=job.instances,
            threads=job.compute.threads,
            beam=run_answers.beam,
            advice=run_answers.advice,
        )
        folder.finish(result.to_dict(), job.formats, run_answers.memo, job.keep_scores)
        return folder, result, evaluation.gold


def _check_model(model: Model, scores: Memo | None) -> None:
    """Checks that the model is the one that was opened; if it changed, the scores are removed.

    A later run of the model that was opened would else continue with scores of the other.
    """
    try:
        model.check_same()
    except Exception:
        if scores is not None:
            scores.clear()
        raise
