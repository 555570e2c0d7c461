"""A run: files of questions in; predictions, metrics and an MLflow run out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nq import storage, tracking
from nq.config import TrackingConfig
from nq.formats import input_files
from nq.runs import parity, record
from nq.runs.beam_run import BeamRun
from nq.runs.job import Job
from nq.runs.measure import Clock, OnPhase, no_report
from nq.runs.result import Result, write_answers, write_result
from nq.runs.scoring import LocalRun, RunProgress


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
        progress: receives completed windows, one call at a time, perhaps in other threads.
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
        checked = LocalRun.of(job, stack) if job.beam is None else BeamRun.of(job, job.beam)
        job, plan, tracking_config = checked.plan.job, checked.plan, track or TrackingConfig()
        with tracking.Run(  # which is opened later, or when there is something to record
            uri=tracking_config.uri,
            experiment=tracking_config.experiment,
            name=f"{job.profile} · {Path(input_files.shown(job.files[0])).name}",
            enabled=track is not None,
        ) as tracked:
            with checked.open(clock, progress) as answering:
                # only now, so that importing MLflow does not delay the loading of the model
                tracked.open(plan.mlflow_file, clock.started)
                files = write_answers(plan, answering, table_rows)
                result = write_result(plan, clock, tracked, files, answering)
            record.record(tracked, job, result)
            if track is not None and track.log_model:
                result = replace(result, model_uri=record.log_model(tracked, job))
            if job.against is not None:
                gold = files.evaluation.gold
                difference = parity.compare_runs(plan.folder, job.against, gold, job.max_loss)
                parity.write_parity(plan.folder, difference, job.sources)
                record.record_parity(tracked, difference, plan.folder)
                result = replace(result, parity=difference)
            run_bytes = storage.size(plan.folder, storage.RUN)
            return replace(result, run_bytes=run_bytes, how_to_open=tracked.how_to_open)
