"""A run: files of questions in; predictions, metrics and an MLflow run out."""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from nq import storage, tracking
from nq.config import TrackingConfig
from nq.errors import DamagedError, Error, check_argument
from nq.evaluation.answers import Answered, AnswerFiles, answer
from nq.evaluation.nq_eval import Gold
from nq.formats import input_files, inputs
from nq.inference.profile import AUTO, Profile
from nq.model.runtime import import_tensorflow
from nq.preprocess.store import encode_dead_letter
from nq.runs import parity, record
from nq.runs.against import MICRO_F1, check_other, write_parity
from nq.runs.beam_run import BeamRun
from nq.runs.clock import LOST, Clock, Measured, iso
from nq.runs.job import Job
from nq.runs.phases import POSTPROCESS, SCORE, TRIALS, OnPhase, no_report
from nq.runs.result import (
    DEAD_LETTERS,
    JOB,
    KEPT_SCORES,
    Result,
    check_finished,
    input_digests,
    write_metrics,
    written_digests,
)
from nq.runs.score_store import clear, copy
from nq.runs.scoring import (
    Plan,
    RunProgress,
    Scoring,
    check_job,
    check_models,
    no_progress,
    open_scoring,
)
from nq.storage import atomic_write

log = logging.getLogger(__name__)

Compute = Callable[[Clock, tracking.Run, RunProgress, int], tuple[Result, Gold]]
"""Computes a run, given its clock, MLflow run, progress and number of rows of the table."""


def run(
    job: Job,
    *,
    track: TrackingConfig | None = None,
    progress: RunProgress = no_progress,
    table_rows: int = 0,
    cache: bool = True,
    on_phase: OnPhase = no_report,
) -> Result:
    """Answers all questions of a job and writes the answers, their scores and the metrics.

    An interrupted run continues where it stopped when an equal job is run again, and then gives
    the same predictions. One of a runner of Beam begins again.

    Args:
        job: what to answer and how.
        track: where MLflow records the run; ``None`` to record nothing.
        progress: receives completed windows.
        table_rows: how many rows of the table of answers the result has.
        cache: whether the profile ``auto`` may take the choice of an earlier run, and keep its own.
        on_phase: receives what goes on, in words, such as "loading the model".

    Returns:
        The folder of the run, its metrics and times.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: an input file as a whole, or the model, is of no use.
        Error: another run writes to the folder, or it holds files of others or an input; a package
            is missing; or profile and decision rule do not fit together.
    """
    check_argument(isinstance(job, Job), "job", job, "nq.Job(files=[…])")
    if job.runner is not None:
        with Clock(on_phase) as clock:
            beam_run = BeamRun.of(job)
            return _run_files(beam_run.job, clock, track, progress, table_rows, beam_run.run)
    with Clock(on_phase) as clock, input_files.input_files(job.files) as files:
        job = replace(job, files=tuple(files))
        job.check_output()
        check_other(job)
        if job.profile == AUTO:
            job = _with_profile(job, clock, cache)
        check_job(job)
        inputs.mention_unnamed_pages(files, job.pages)
        return _run_files(job, clock, track, progress, table_rows, partial(_run, job))


def _with_profile(job: Job, clock: Clock, cache: bool) -> Job:
    """Returns a job with what ``auto`` chooses."""
    from nq.runs.profile_choice import choose_profile

    check_models(job)
    import_tensorflow(job.threads)
    with _held(job.output, job.sources), clock.timer(TRIALS):
        choice, tried = choose_profile(job, cache=cache)
    if tried:
        clock.note("trials of profiles")
    return choice.of(job)


def _held(
    folder: Path | None, inputs: Sequence[str | Path]
) -> contextlib.AbstractContextManager[None]:
    """Returns a hold of a run's folder, which is marked before windows are prepared in it."""
    if folder is None:
        return contextlib.nullcontext()
    return storage.hold(folder, storage.RUN, inputs)


def _run_files(
    job: Job,
    clock: Clock,
    track: TrackingConfig | None,
    progress: RunProgress,
    table_rows: int,
    compute: Compute,
) -> Result:
    """Runs a job whose files are found and whose profile is chosen; see ``run``."""
    with record.tracked_run(job, track) as tracked:
        result, gold = compute(clock, tracked, progress, table_rows)
        record.record(tracked, job, result)
        if track is not None and track.log_model:
            result = replace(result, model_uri=record.log_model(tracked, job))
        if job.against is not None:
            report = clock.timer.on_phase
            other = _other_folder(job, job.against, result, progress, track, report)
            is_folder = isinstance(job.against, Path)
            difference = parity.compare(result.folder, other, is_folder, gold, job.max_loss)
            write_parity(result.folder, difference, job.sources)
            record.record_parity(tracked, difference, result.folder)
            size = storage.size(result.folder, storage.RUN)
            result = replace(result, parity=difference, run_bytes=size)
        how_to_open, how_to_compare = tracked.links()
        return replace(result, how_to_open=how_to_open, how_to_compare=how_to_compare)


def _other_folder(
    job: Job,
    against: Profile | Path,
    result: Result,
    progress: RunProgress,
    track: TrackingConfig | None,
    on_phase: OnPhase,
) -> Path:
    """Returns the folder of the run that a run is compared with, which is run if there is none."""
    if job.max_loss is not None and MICRO_F1 not in result.metrics:
        raise Error(f"{result.folder} has no micro-F1, since the data have no annotations")
    folder = against
    if not isinstance(folder, Path):
        other = replace(
            job,
            profile=folder,
            output=None,
            root=job.output or job.root,
            keep_scores=True,
            formats=(),
            against=None,
            max_loss=None,
        )
        folder = run_once(other, progress, track and replace(track, log_model=False), on_phase)
    if input_digests(result.folder) != input_digests(folder):
        raise Error("the input files have changed between the two runs: run both again")
    return folder


def run_once(
    job: Job,
    progress: RunProgress = no_progress,
    track: TrackingConfig | None = None,
    on_phase: OnPhase = no_report,
) -> Path:
    """Returns the folder of a run of ``job``, which is run only if there is none.

    Args:
        job: without ``output``, so that its folder is named by all that its results depend on.
        progress: receives completed windows.
        track: where MLflow records the run if it is run.
        on_phase: receives what goes on, in words.
    """
    folder = Plan.of(job).folder
    try:
        check_finished(folder, with_scores=job.keep_scores)
        return folder
    except FileNotFoundError:
        pass
    except DamagedError as error:
        log.warning("%s; the run is made again", error)
    return run(job, track=track, progress=progress, on_phase=on_phase).folder


def _answers(job: Job, scoring: Scoring, table_rows: int) -> Iterator[Answered]:
    for number, (example, scores) in enumerate(scoring):
        yield answer(example, scores, job.model.decision, job.formats, number < table_rows)


def _run(
    job: Job, clock: Clock, tracked: tracking.Run, progress: RunProgress, table_rows: int
) -> tuple[Result, Gold]:
    """Computes a run; returns its result, and the labels of the annotators."""
    plan = Plan.of(job)
    folder = plan.folder
    with open_scoring(plan, clock.timer, progress) as scoring, clock.kept(scoring):
        clock.timer.enter(POSTPROCESS)
        # only now, so that importing MLflow does not delay the loading
        tracked.open(record.unfinished_file(folder, plan.description), clock.started)
        (folder / JOB).unlink(missing_ok=True)
        answers = AnswerFiles(job.formats)
        answers.write(folder, _answers(job, scoring, table_rows))
        clock.timer.enter(SCORE)
        dead_letters = _write_dead_letters(scoring, folder)
        metrics = answers.evaluation.metrics()
        store, chunks, counters = scoring.scorer.store, scoring.chunks, scoring.scorer.counters
        clear(folder / KEPT_SCORES)
        if job.keep_scores:
            copy(store.folder, folder / KEPT_SCORES)
        measured, ended = clock.finish(), time.time()
        tracked.end_at(ended)
        result = Result(
            folder=folder,
            profile=str(job.profile),
            device=scoring.scorer.device,
            precision=scoring.scorer.precision,
            examples=answers.examples,
            windows=chunks.total("windows"),
            resumed_windows=scoring.scorer.stored_windows,
            read_windows=counters.computed_windows,
            float32_windows=counters.float32_windows,
            rescored=scoring.scorer.rescored_examples,
            reader_windows=scoring.scorer.reader_windows,
            windows_per_s=_windows_per_s(scoring, measured),
            answered=answers.answered,
            dead_letters=dead_letters,
            without_gold=answers.evaluation.without_gold,
            text_only=answers.evaluation.text_only,
            truncated_pages=chunks.total("truncated_pages"),
            unread_blocks=chunks.total("unread_blocks"),
            peak_memory_bytes=measured.peak_memory_bytes,
            metrics=metrics,
            time=measured.time,
            run_id=tracked.run_id,
            rows=tuple(answers.rows),
            started_at=iso(measured.started),
            ended_at=iso(ended),
            parts=measured.parts,
            machine=measured.machine,
            instances=job.instances,
            threads=job.threads,
            not_comparable=measured.reasons,
        )
        write_metrics(folder, result.to_dict())
        # This file marks the run as finished.
        written = written_digests(folder, job.formats)
        storage.write_json(folder / JOB, plan.description | {"files": written})
        clear(store.folder)  # not before, so that no interruption loses scores
        prepared = sum(storage.size(chunk.folder, storage.WINDOWS) for chunk in chunks.ready)
    run_bytes = storage.size(folder, storage.RUN)
    result = replace(result, run_bytes=run_bytes, windows_bytes=prepared)
    return result, answers.evaluation.gold


def _windows_per_s(scoring: Scoring, measured: Measured) -> float:
    """Returns the speed without compilation and warm-up; with the warm-up if there is no more.

    Windows that pruning leaves out count; those of a second model do not, nor does its time. If a
    run was interrupted, the windows and the time of all parts count.
    """
    seconds, windows = measured.time["predict_s"], scoring.chunks.total("windows")
    if LOST in measured.reasons:
        windows -= scoring.scorer.stored_windows
    if windows > measured.warmup_windows:
        windows -= measured.warmup_windows
    else:
        seconds += measured.time["warmup_s"]
    return float(windows / seconds) if windows and seconds > 0 else 0.0


def _write_dead_letters(scoring: Scoring, folder: Path) -> int:
    """Writes the records that could not be used; returns how many there are."""
    count = scoring.chunks.total("dead_letters") + len(scoring.duplicates)
    with atomic_write(folder / DEAD_LETTERS) as output:
        for chunk in scoring.chunks.ready:
            with chunk.dead_letter_file.open("rb") as letters:
                shutil.copyfileobj(letters, output)
        for letter in scoring.duplicates:
            output.write(f"{encode_dead_letter(letter)}\n".encode())
    return int(count)
