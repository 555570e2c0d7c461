"""A run: files of questions in; predictions, metrics and an MLflow run out."""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nq import checksums, folders, tracking
from nq.config import TrackingConfig
from nq.errors import DamagedError, Error, check_argument
from nq.evaluation.nq_eval import Gold
from nq.files import atomic_write
from nq.formats import input_files, inputs, outputs
from nq.formats.predictions import encode_prediction, write_predictions
from nq.inference.profile import AUTO, Profile
from nq.model.runtime import import_tensorflow
from nq.postprocess.decision import RULES, decide
from nq.preprocess.store import encode_dead_letter
from nq.records import Annotation, Example, Prediction, YesNo
from nq.runs import parity, record
from nq.runs.against import MICRO_F1, check_other, write_parity
from nq.runs.clock import LOST, Clock, Measured, iso
from nq.runs.evaluate import Evaluation, accepted_answers
from nq.runs.job import Job
from nq.runs.phases import POSTPROCESS, SCORE, TRIALS, OnPhase, no_report
from nq.runs.result import (
    DEAD_LETTERS,
    JOB,
    KEPT_SCORES,
    METRICS,
    PREDICTIONS,
    Result,
    Row,
    check_finished,
    input_digests,
    write_metrics,
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

log = logging.getLogger(__name__)


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
    the same predictions.

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
    with Clock(on_phase) as clock, input_files.input_files(job.files) as files:
        job = replace(job, files=tuple(files))
        job.check_output()
        check_other(job)
        if job.profile == AUTO:
            job = _with_profile(job, clock, cache)
        check_job(job)
        inputs.mention_unnamed_pages(files, job.pages)
        return _run_files(job, clock, track, progress, table_rows)


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
    return folders.hold(folder, folders.RUN, inputs)


def _run_files(
    job: Job, clock: Clock, track: TrackingConfig | None, progress: RunProgress, table_rows: int
) -> Result:
    """Runs a job whose files are found and whose profile is chosen; see ``run``."""
    with record.tracked_run(job, track) as tracked:
        result, gold = _run(job, clock, tracked, progress, table_rows)
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
            size = folders.size(result.folder, folders.RUN)
            result = replace(result, parity=difference, run_bytes=size)
        how_to_open, how_to_compare = tracked.how_to_open(), tracked.how_to_compare()
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


class _Answers:
    """Decides every scored example, and counts and evaluates the predictions.

    Args:
        job: with the decision and the output formats.
        scoring: yields the examples with their scores.
        table_rows: how many rows of the table of answers to keep.
    """

    def __init__(self, job: Job, scoring: Scoring, table_rows: int) -> None:
        self.job, self.scoring, self.table_rows = job, scoring, table_rows
        self.evaluation, self.rows = Evaluation(), list[Row]()
        self.examples = self.answered = 0

    def write(self, folder: Path) -> None:
        """Writes the predictions in all formats of the job."""
        with outputs.open_writer(folder, self.job.formats) as writer:
            write_predictions(folder / PREDICTIONS, self._encoded(writer))

    def _encoded(self, writer: outputs.Writer) -> Iterator[dict[str, Any]]:
        with_bytes = RULES[self.job.decision.rule].with_bytes
        for example, scores in self.scoring:
            decision = decide(example, scores, self.job.decision)
            prediction = decision.prediction
            token_bytes = example.token_bytes if with_bytes else None
            encoded = encode_prediction(prediction, token_bytes, example.original)
            correct = self.evaluation.add(example, encoded)
            writer.write(example, prediction, decision.alternatives)
            self.examples += 1
            self.answered += prediction.answered
            if len(self.rows) < self.table_rows:
                self.rows.append(table_row(example, prediction, correct))
            yield encoded


def _run(
    job: Job, clock: Clock, tracked: tracking.Run, progress: RunProgress, table_rows: int
) -> tuple[Result, Gold]:
    """Computes a run; returns its result, and the labels of the annotators."""
    plan = Plan.of(job)
    folder = plan.folder
    with open_scoring(plan, clock.timer, progress) as scoring, clock.kept(scoring):
        clock.timer.enter(POSTPROCESS)
        # only now, so that importing MLflow does not delay the loading
        tracked.open(record.unfinished_file(folder, _description(plan)), clock.started)
        (folder / JOB).unlink(missing_ok=True)
        answers = _Answers(job, scoring, table_rows)
        answers.write(folder)
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
        checksums.write_json(folder / JOB, _description(plan) | {"files": _digests(plan)})
        clear(store.folder)  # not before, so that no interruption loses scores
        prepared = sum(folders.size(chunk.folder, folders.WINDOWS) for chunk in chunks.ready)
    run_bytes = folders.size(folder, folders.RUN)
    result = replace(result, run_bytes=run_bytes, windows_bytes=prepared)
    return result, answers.evaluation.gold


def _windows_per_s(scoring: Scoring, measured: Measured) -> float:
    """Returns the speed without compilation and warm-up; with the warm-up if there is no more.

    Windows that pruning leaves out count; those of a reader do not, nor does its time. Of a run
    that was interrupted, the windows and the time of all parts count.
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


def _description(plan: Plan) -> dict[str, Any]:
    """Returns the job with the digests of what it read, as ``job.json`` has it."""
    described = [request.description for request in plan.requests]
    files = [file for description in described for file in description["inputs"]]
    return {"job": plan.job.to_dict(), "request": {**described[0], "inputs": files}}


def _digests(plan: Plan) -> dict[str, str]:
    """Returns the digests of the files that the run wrote, by name."""
    written = [PREDICTIONS, METRICS, DEAD_LETTERS]
    written += [outputs.FORMATS[name].FILE for name in plan.job.formats]
    return {name: input_files.sha256(plan.folder / name) for name in written}


def table_row(example: Example, prediction: Prediction, correct: bool | None) -> Row:
    """Returns an answer of the table, with the right answers if it is wrong."""
    expected = Counter[str]()
    if correct is False and example.answers is not None:
        expected.update(example.answers)
    elif correct is False:
        expected.update(answer_text(example, answer) for answer in accepted_answers(example))
    texts = tuple(text for text, _ in expected.most_common())
    return Row(example.question, answer_text(example, prediction), correct, texts)


def answer_text(example: Example, answer: Prediction | Annotation) -> str:
    """Returns the answer in words: YES or NO, the short answers, the long one, or empty."""
    if answer.yes_no is not YesNo.NONE:
        return str(answer.yes_no)
    if answer.shorts:
        return "; ".join(example.text(span) for span in answer.shorts)
    return example.text(answer.long) if answer.long else ""
