"""A run: files of questions in; predictions, metrics and an MLflow run out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nq import storage, tracking
from nq.config import AUTO, TrackingConfig
from nq.evaluation.answers import answer
from nq.evaluation.nq_eval import Gold
from nq.formats import input_files
from nq.runs import parity, record
from nq.runs.beam_run import BeamRun
from nq.runs.job import Job
from nq.runs.measure import POSTPROCESS, Clock, OnPhase, no_report
from nq.runs.plan import Plan, check_job
from nq.runs.profile_choice import choose_profile
from nq.runs.result import (
    DEAD_LETTERS,
    Result,
    write_answers,
    write_result,
)
from nq.runs.scoring import RunProgress, open_scoring


def run(
    job: Job | str | Path | Iterable[str | Path],
    *,
    track: TrackingConfig | None = None,
    progress: RunProgress = no_report,
    table_rows: int = 0,
    on_phase: OnPhase = no_report,
    **settings: Any,
) -> Result:
    """Answers all questions of a job and writes the answers, their scores and the metrics.

    An interrupted run continues where it stopped when an equal job is run again, and then gives
    the same predictions. One of a runner of Beam begins again.

    Args:
        job: what to answer and how, or files of questions.
        track: where MLflow records the run; ``None`` to record nothing.
        progress: receives completed windows.
        table_rows: how many rows of the table of answers the result has.
        on_phase: receives what goes on, in words, such as "loading the model".
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
        job = Job([job] if isinstance(job, str | Path) else job, **settings)
    elif settings:
        job = replace(job, **settings)
    with Clock(on_phase) as clock, contextlib.ExitStack() as stack:
        compute: Callable[[Clock, tracking.Run, RunProgress, int], tuple[Result, Gold]]
        if job.beam is None:
            job = replace(job, files=tuple(stack.enter_context(input_files.input_files(job.files))))
            job.check_output()
            parity.check_other(job)
            if job.profile == AUTO:
                check_job(job)
                job = replace(job, profile=choose_profile(job))
            check_job(job)
            compute = partial(_run, job)
        else:
            beam_run = BeamRun.of(job, job.beam)
            job, compute = beam_run.job, beam_run.run
        tracking_config = track or TrackingConfig()
        with tracking.Run(  # which is opened later, or when there is something to record
            uri=tracking_config.uri,
            experiment=tracking_config.experiment,
            name=f"{job.profile} · {Path(input_files.shown(job.files[0])).name}",
            enabled=track is not None,
        ) as tracked:
            result, gold = compute(clock, tracked, progress, table_rows)
            record.record(tracked, job, result)
            if track is not None and track.log_model:
                result = replace(result, model_uri=record.log_model(tracked, job))
            if job.against is not None:
                difference = parity.compare(result.folder, job.against, gold, job.max_loss)
                parity.write_parity(result.folder, difference, job.sources)
                record.record_parity(tracked, difference, result.folder)
                result = replace(result, parity=difference)
            run_bytes = storage.size(result.folder, storage.RUN)
            return replace(result, run_bytes=run_bytes, how_to_open=tracked.how_to_open)


def _run(
    job: Job, clock: Clock, tracked: tracking.Run, progress: RunProgress, table_rows: int
) -> tuple[Result, Gold]:
    """Computes a run in this process; returns its result, and the labels of the annotators."""
    plan = Plan.of(job)
    with (
        open_scoring(plan, clock, progress) as scoring,
        clock.kept(scoring.store.memo.folder, scoring.totals),
    ):
        clock.enter(POSTPROCESS)
        # only now, so that importing MLflow does not delay the loading
        tracked.open(plan.mlflow_file, clock.started)
        decision, formats = job.model.decision, job.formats
        answers = (
            answer(example, scores, decision, formats, number < table_rows)
            for number, (example, scores) in enumerate(scoring)
        )
        files = write_answers(plan, answers)
        with storage.atomic_write(plan.folder / DEAD_LETTERS) as dead_letters:
            dead_letters.writelines(scoring.dead_letters())
        totals = scoring.totals()
        result = write_result(plan, clock, tracked, files, totals, store=scoring.store)
        prepared = [storage.size(c.folder, storage.WINDOWS) for c in scoring.chunks.ready]
    return replace(result, windows_bytes=sum(prepared)), files.evaluation.gold
