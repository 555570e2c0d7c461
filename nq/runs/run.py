"""A run: files of questions in; predictions, metrics and an MLflow run out."""

import contextlib
import time
from collections.abc import Iterable
from dataclasses import fields, replace
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

from nq import storage, tracking
from nq.config import TrackingConfig
from nq.evaluation.answers import AnswerFiles
from nq.evaluation.nq_eval import Gold
from nq.formats import input_files, outputs
from nq.memo import Memo
from nq.progress import reporting
from nq.runs import parity, record
from nq.runs.beam_run import BeamRun
from nq.runs.job import Job
from nq.runs.measure import SCORE, Clock, OnPhase
from nq.runs.plan import Plan
from nq.runs.result import (
    DEAD_LETTERS,
    JOB,
    KEPT_SCORES,
    METRICS,
    PREDICTIONS,
    Result,
    write_metrics,
)
from nq.runs.scoring import LocalRun, RunProgress, Scoring


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
        checked = LocalRun(job, stack) if job.beam is None else BeamRun(job, job.beam)
        job, plan = checked.plan.job, checked.plan
        name = f"{job.profile} · {Path(input_files.shown(job.files[0])).name}"
        # it is opened later, or when there is something to record
        with tracking.Run(track, name) as tracked:
            with checked.open(clock, report) as answering:
                # only now, so that importing MLflow does not delay the loading of the model
                tracked.open(plan.mlflow_file, clock.started)
                result, gold = _write(plan, answering, table_rows, clock, tracked)
            record.record(tracked, job, result)
            if track is not None and track.logs_model:
                result = replace(result, model_uri=record.log_model(tracked, job))
            if job.against is not None:
                difference = parity.compare_runs(plan.folder, job.against, gold, job.max_loss)
                parity.write_parity(plan.folder, difference, job.sources)
                record.record_parity(tracked, difference, plan.folder)
                result = replace(result, parity=difference)
            run_bytes = storage.size(plan.folder, storage.RUN)
            return replace(result, run_bytes=run_bytes, how_to_open=tracked.how_to_open)


def _write(
    plan: Plan, answering: Scoring | BeamRun, table_rows: int, clock: Clock, tracked: tracking.Run
) -> tuple[Result, Gold]:
    """Writes answers, dead letters and metrics of a run to its folder; returns its gold too.

    The mark of an earlier finished run, ``job.json``, is removed when the first answer is known,
    and written as the last file. The scores are kept if the job requires it.
    """
    job, folder = plan.job, plan.folder
    files = AnswerFiles(job.formats)
    with storage.atomic_write(folder / DEAD_LETTERS) as dead_letters:
        answers = answering.answers(table_rows, dead_letters)
        first = list(islice(answers, 1))
        (folder / JOB).unlink(missing_ok=True)
        files.write(folder, chain(first, answers))
    totals, beam, store = answering.totals(), answering.pipeline, answering.store
    evaluation = files.evaluation
    clock.enter(SCORE)
    metrics = evaluation.metrics()
    Memo(folder / KEPT_SCORES).clear()
    measured, tracked.ended = clock.finish(totals), time.time()
    moments = (datetime.fromtimestamp(t, UTC) for t in (measured.started, tracked.ended))
    started_at, ended_at = (moment.isoformat(timespec="milliseconds") for moment in moments)
    known = {f.name for f in fields(Result)}
    counts = {n: x for n, x in (vars(totals) | vars(measured)).items() if n in known}
    result = Result(
        folder=folder,
        profile=str(job.profile),
        device=", ".join(sorted(totals.devices)),
        precision=", ".join(sorted(totals.precisions)),
        examples=files.examples,
        read_windows=totals.counters.computed_windows,
        float32_windows=totals.counters.float32_windows,
        windows_per_s=measured.windows_per_s(totals),
        answered=files.answered,
        without_gold=evaluation.without_gold,
        text_only=evaluation.text_only,
        metrics=metrics,
        verdicts=evaluation.verdicts,
        run_id=tracked.run_id,
        rows=tuple(files.rows),
        started_at=started_at,
        ended_at=ended_at,
        instances=job.instances,
        threads=job.compute.threads,
        not_comparable=measured.reasons if beam is None else (f"answered by {beam['runner']}",),
        beam=beam,
        windows_bytes=answering.windows_bytes,
        choice=plan.choice,
        **counts,
    )
    write_metrics(folder, result.to_dict())
    names = [PREDICTIONS, METRICS, DEAD_LETTERS, *(outputs.FORMATS[n].file for n in job.formats)]
    digests = {name: storage.sha256(folder / name) for name in names}
    mark = {**plan.description, "files": digests, **({} if beam is None else {"beam": beam})}
    storage.write_json(folder / JOB, mark)
    if store is not None:  # not before, so that no interruption loses scores
        if job.keep_scores:
            store.memo.move(folder / KEPT_SCORES)
        store.memo.clear()
    return result, evaluation.gold
