"""A run: files of questions in; predictions, metrics and an MLflow run out."""

import contextlib
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nq import tracking
from nq.config import TrackingConfig
from nq.evaluation.answer_files import AnswerFiles
from nq.evaluation.nq_eval import Gold
from nq.formats.input_files import LOCAL
from nq.progress import reporting
from nq.questions import Questions, mention_unnamed_pages
from nq.runs import parity, record
from nq.runs.beam_run import Pipeline, file_system, open_pipeline
from nq.runs.folder import FinishedRun, RunFolder, check_output
from nq.runs.job import Job
from nq.runs.measure import SCORE, Clock, OnPhase
from nq.runs.profile_choice import with_profile, without_gain
from nq.runs.result import Result
from nq.runs.scoring import RunProgress, Scoring, open_scoring


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
            is missing; or profile and decision rule do not fit together.
    """
    if not isinstance(job, Job):
        job = Job(job, **settings)
    elif settings:
        job = replace(job, **settings)
    labels = ("answer", "examples") if job.beam else ("predict", "windows")
    with contextlib.ExitStack() as stack:
        report, phase = stack.enter_context(reporting(progress, on_phase, *labels))
        clock = stack.enter_context(Clock(phase))
        job.check()
        files = LOCAL if job.beam is None else file_system(job)
        questions = stack.enter_context(Questions.open(job.files, job.pages, job.limit, files))
        mention_unnamed_pages(questions)
        job = replace(job, files=questions.files, pages=questions.pages)
        check_output(job)
        other = parity.open_other(job, questions)
        job, choice = with_profile(job, questions)
        name = record.run_name(str(job.profile), job.model.name, job.files[0])
        # it is opened later, or when there is something to record
        with tracking.Run(track, name) as tracked:
            result, gold = _answer(job, questions, tracked, clock, report, table_rows)
            no_gain = "" if job.beam else without_gain(result.profile, result.totals.device)
            result = replace(result, advice=choice or no_gain)
            record.record(tracked, job, result)
            if track is not None and track.logs_model:
                result = replace(result, model_uri=record.log_model(tracked, job))
            if other is not None:
                finished = FinishedRun(result.folder, check=False)
                difference = parity.compare(finished, other, gold, job.max_loss)
                finished.add_parity(difference, job.sources)
                record.record_parity(tracked, difference, result.folder)
                result = replace(result, parity=difference)
            run_bytes = RunFolder(result.folder, {}).size
            return replace(result, run_bytes=run_bytes, how_to_open=tracked.how_to_open)


def _answer(
    job: Job,
    questions: Questions,
    tracked: tracking.Run,
    clock: Clock,
    progress: RunProgress,
    table_rows: int,
) -> tuple[Result, Gold]:
    """Answers questions and writes the folder of the run; returns its result and its gold."""
    request = job.request(questions)
    description = {"job": job.to_dict(), "request": request.description}
    open_answers = open_scoring if job.beam is None else open_pipeline
    with (
        RunFolder.writing(job.folder(request), description, job.sources) as folder,
        open_answers(job, request, folder, clock, progress) as answering,
    ):
        # only now, so that importing MLflow does not delay the loading of the model
        tracked.open(folder.mlflow_file, clock.started)
        files = folder.write(answering.answers(table_rows), job.formats)
        clock.enter(SCORE)
        result = _result(job, folder, files, answering, clock, tracked)
        scores = None if answering.store is None else answering.store.memo
        folder.finish(result.to_dict(), job.formats, scores, job.keep_scores)
        return result, files.evaluation.gold


def _result(
    job: Job,
    folder: RunFolder,
    files: AnswerFiles,
    answering: Scoring | Pipeline,
    clock: Clock,
    tracked: tracking.Run,
) -> Result:
    """Returns the result of a run whose answers are written; ends the measurement of its times."""
    totals, evaluation, metrics = answering.totals(), files.evaluation, files.evaluation.metrics()
    measured, tracked.ended = clock.finish(totals), time.time()
    return Result(
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
        run_bytes=0,
        windows_bytes=answering.windows_bytes,
        instances=job.instances,
        threads=job.compute.threads,
        beam=answering.pipeline,
    )
