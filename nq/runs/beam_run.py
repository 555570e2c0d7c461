"""A run whose questions a runner of Beam answers, on this machine or on a cluster.

The workers read, score and decide; this process merges what they wrote, in the order of the input,
into the files of a run without Beam. A run that was interrupted begins again.
"""

from __future__ import annotations

import contextlib
import glob
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from nq import checksums, extras, folders, tracking
from nq.errors import DamagedError, Error
from nq.evaluation.nq_eval import Gold
from nq.files import atomic_write
from nq.formats import inputs
from nq.formats.input_files import is_uri
from nq.formats.streams import shown
from nq.inference.scorer import PART_BATCHES, Counters, concatenate, feature_rows
from nq.inference.spec import ScorerSpec
from nq.preprocess.features import features
from nq.preprocess.store import UNFINISHED, encode_dead_letter
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import Columns, DeadLetter, Example, ExampleId, ExampleKey, Source
from nq.runs import record
from nq.runs.against import check_other
from nq.runs.answers import Answered, AnswerFiles
from nq.runs.cascade import reader_calibration
from nq.runs.clock import Clock, iso
from nq.runs.job import Job
from nq.runs.machine import machine
from nq.runs.phases import MERGE, PIPELINE, SCORE, SUBMIT
from nq.runs.result import (
    DEAD_LETTERS,
    JOB,
    UNFINISHED_SCORES,
    Result,
    write_metrics,
    written_digests,
)
from nq.runs.scoring import (
    CALIBRATION_WINDOWS,
    Plan,
    RunProgress,
    check_model_folders,
    check_rules,
    duplicate,
)

if TYPE_CHECKING:
    from nq.beam.answer import AnswerJob
    from nq.beam.elements import Work
    from nq.beam.runner import Finished

MODEL_S, LOAD_S = "inference_batch_latency_micro_secs", "load_model_latency_milli_secs"
"""Distributions of Beam's ``RunInference``."""


@dataclass(frozen=True)
class BeamRun:
    """A job for a runner of Beam, whose input files are found and checked.

    Args:
        job: with the names of its files.
        options: of Beam, with the runner.
        digests: the SHA-256 of each file.
        statuses: size and time of each file with a URI.
    """

    job: Job
    options: tuple[str, ...]
    digests: Mapping[str, str]
    statuses: Mapping[str, Any]

    @classmethod
    def of(cls, job: Job) -> BeamRun:
        """Finds and checks the input files of a job.

        Raises:
            Error: Beam is not installed, all records are bad, or the folder of the run, or that of
                the run to compare with, is of no use.
            OSError: a file cannot be read.
            ValueError: Beam refuses an option, or a file or model is of no use.
        """
        extras.require("beam")
        from nq.beam import files
        from nq.beam.flink import check_flink

        options = (f"--runner={job.runner}", *job.beam_options)
        files.set_options(options)
        check_flink(options)
        check_rules(job)
        check_model_folders(job)
        found = files.find_files(job.files)
        job = replace(job, files=tuple(found))
        job.check_output()
        statuses = {path: files.status(path) for path in found if is_uri(path)}
        digests = files.check(found, job.limit, job.pages)
        check_other(job, digests)
        if not statuses:
            inputs.mention_unnamed_pages(found, job.pages)
        return cls(job, options, digests, statuses)

    def run(
        self, clock: Clock, tracked: tracking.Run, progress: RunProgress, table_rows: int
    ) -> tuple[Result, Gold]:
        """Runs the pipeline and writes the files of the run.

        Args:
            clock: measures the run.
            tracked: the MLflow run, which is opened.
            progress: receives answered examples.
            table_rows: how many rows of the table of answers the result has.

        Returns:
            The result, and the labels of the annotators.
        """
        from nq.beam.answer import run_answers
        from nq.beam.files import check_unchanged
        from nq.beam.merge import merged

        job, timer = self.job, clock.timer
        timer.enter(SUBMIT)
        plan = Plan.of(job, (job.request(self.digests),))
        folder = plan.folder
        with folders.hold(folder, folders.RUN, job.sources), _part(folder) as part:
            _check_free(plan)
            tracked.open(record.unfinished_file(folder, plan.description), clock.started)
            with _shared(job, part) as shared:
                work = self._answer_job(shared, table_rows)
                options = self._options(folder)
                timer.enter(PIPELINE)
                finished, paths = run_answers(work, options, part, shared, progress)
            check_unchanged(self.statuses)
            plan.requests[0].check_unchanged()
            timer.enter(MERGE)
            (folder / JOB).unlink(missing_ok=True)
            merge, answers = _Merge(job), AnswerFiles(job.formats)
            with atomic_write(folder / DEAD_LETTERS) as dead_letters:
                answers.write(folder, merge.answers(merged(paths), dead_letters))
            timer.enter(SCORE)
            outcome = _Outcome(finished, work.readers, merge, answers)
            result = outcome.result(plan, clock, options)
            tracked.end_at(time.time())
            result = replace(result, run_id=tracked.run_id)
            write_metrics(folder, result.to_dict())
            # This file marks the run as finished.
            written = written_digests(folder, job.formats)
            described = plan.description | {"files": written, "beam": result.beam}
            checksums.write_json(folder / JOB, described)
        size = folders.size(folder, folders.RUN)
        return replace(result, run_bytes=size), answers.evaluation.gold

    def _options(self, folder: Path) -> list[str]:
        """Returns the options with a name of the job, by which it is found in a cluster."""
        if any(re.match("--job_name(=|$)", option) for option in self.options):
            return list(self.options)
        name = re.sub("[^a-z0-9]+", "-", f"nq-answer-{folder.name}".lower()).rstrip("-")
        return [*self.options, f"--job_name={name}-{uuid.uuid4().hex[:8]}"]

    def _answer_job(self, shared: str, table_rows: int) -> AnswerJob:
        """Returns what the pipeline answers.

        Args:
            shared: the folder that all workers see.
            table_rows: see ``run``.
        """
        from nq.beam.answer import AnswerJob
        from nq.beam.runner import requested_workers
        from nq.beam.staging import stage_model

        job = self.job
        spec = self._spec()
        models = {spec.folder, *([spec.reader.folder] if spec.reader else [])}
        staged = {} if job.temp is None else {one: stage_model(one, shared) for one in models}
        readers = job.workers or requested_workers(self.options) or 1
        settings = job.decision, job.limit, job.pages, job.formats, table_rows, staged, readers
        return AnswerJob(job.files, spec, *settings)

    def _spec(self) -> ScorerSpec:
        """Returns the description of the scorer, with windows on which it is calibrated."""
        job, calibrated = self.job, self.job.optimizations.changes.int8
        reader = job.reader_model
        if reader is not None:
            reader = replace(reader, folder=reader.folder.absolute())
        return ScorerSpec(
            job.model.absolute(),
            job.windows,
            job.first_decision,
            job.batch_size,
            job.optimizations,
            reader,
            calibration=_calibration(job) if calibrated else {},
            reader_calibration=reader_calibration(job, reader) if calibrated and reader else {},
            threads=job.threads,
        )


def _calibration(job: Job) -> Columns:
    """Returns windows of the first examples; those on which a run without Beam is calibrated."""
    from nq.beam.files import read_records

    tokenizer, windows = load_tokenizer(job.model, job.windows.compat), list[Columns]()
    enough, count = PART_BATCHES * job.batch_size, 0
    for path in job.files:
        for _, item in read_records(path, pages=job.pages):
            if count >= enough:
                break
            if isinstance(item, Example):
                windows.append(feature_rows(features(item, tokenizer, job.windows)))
                count += len(windows[-1]["window_ids"])
    step = -(-count // CALIBRATION_WINDOWS)
    return {name: column[::step] for name, column in concatenate(windows).items()}


def _check_free(plan: Plan) -> None:
    """Checks that a folder has no run that this one would overwrite.

    Raises:
        Error: it has the finished run of another job, or an unfinished run.
    """
    folder = plan.folder
    if (folder / UNFINISHED_SCORES).is_dir():
        raise Error(
            f"{folder} has an unfinished run, which the same command without --runner resumes: "
            "give another --output"
        )
    try:
        found = checksums.read_json(folder / JOB)
    except FileNotFoundError:
        return
    except DamagedError as error:
        raise Error(f"{error}: give another --output") from error
    if any(found.get(name) != value for name, value in plan.description.items()):
        raise Error(f"{folder} has the finished run of another job: give another --output")


@contextlib.contextmanager
def _part(folder: Path) -> Iterator[Path]:
    """Makes a folder for unfinished files in the folder of a run; it is removed with the block.

    Those that killed processes left are removed too.
    """
    _remove(folder, UNFINISHED)
    part = folder.resolve() / f"{UNFINISHED}{uuid.uuid4().hex[:12]}"
    part.mkdir()
    try:
        yield part
    finally:
        _remove(folder, part.name)


def _remove(folder: Path, prefix: str) -> None:
    """Removes the files and folders of ours in a run's folder whose names begin with a prefix."""
    own = folders.own_paths(folder, folders.RUN)
    folders.remove([path for path in own if path.relative_to(folder).parts[0].startswith(prefix)])


@contextlib.contextmanager
def _shared(job: Job, part: Path) -> Iterator[str]:
    """Yields the folder that all workers see: ``part``, or a new one in that of the job.

    Raises:
        Error: Beam cannot write to ``part``.
        OSError: a folder cannot be made.
    """
    if job.temp is not None:
        from nq.beam.files import absolute, new_folder

        with new_folder(absolute(job.temp), f"nq-{uuid.uuid4().hex[:12]}") as folder:
            yield folder
        return
    if glob.escape(str(part)) != str(part):
        raise Error(f"Beam takes *, ? and [ in {part.parent} for patterns: give another --output")
    yield str(part)


@dataclass
class _Totals:
    """What was done for all examples; see ``nq.beam.elements.Work``."""

    windows: int = 0
    unread_blocks: int = 0
    truncated_pages: int = 0
    reader_windows: int = 0
    rescored: int = 0
    prepare_s: float = 0.0
    counters: Counters = field(default_factory=Counters)
    devices: set[str] = field(default_factory=set)
    precisions: set[str] = field(default_factory=set)

    def add(self, work: Work, is_answered: bool) -> None:
        """Adds what was done for one example.

        Args:
            work: what it was.
            is_answered: whether the example is among the answers; a repeated record is not.
        """
        self.windows += work.windows
        self.unread_blocks += work.unread_blocks
        self.truncated_pages += work.unread_blocks > 0
        self.reader_windows += work.reader_windows * is_answered
        self.rescored += work.rescored * is_answered
        self.prepare_s += work.prepare_s
        self.devices.add(work.device)
        self.precisions.add(work.precision)
        for one in fields(Counters) if work.part else ():
            total = getattr(self.counters, one.name) + getattr(work.part, one.name)
            setattr(self.counters, one.name, total)


class _Merge:
    """Divides the records of the workers into answers and dead letters.

    Args:
        job: whose files they are of.

    Attributes:
        totals: of the answers.
        dead_letters: how many there are.
    """

    def __init__(self, job: Job) -> None:
        self.totals, self.dead_letters = _Totals(), 0
        self._files = job.files

    def answers(
        self, records: Iterable[tuple[ExampleKey, bytes]], output: IO[bytes]
    ) -> Iterator[Answered]:
        """Yields the answers; writes the dead letters, those for repeated ids at the end.

        Args:
            records: in the order of the input.
            output: of the dead letters.
        """
        from nq.beam.records import decode

        seen, duplicates = set[ExampleId](), list[DeadLetter]()
        for (file, line), data in records:
            item = decode(data, Source(file, shown(self._files[file]), line))
            if isinstance(item, DeadLetter):
                self._write(item, output)
                continue
            key = item.answered.judgment.example_id
            self.totals.add(item.work, key not in seen)
            if key in seen:
                duplicates.append(duplicate(item.source, key, item.question))
                continue
            seen.add(key)
            yield item.answered
        for letter in duplicates:
            self._write(letter, output)

    def _write(self, letter: DeadLetter, output: IO[bytes]) -> None:
        output.write(f"{encode_dead_letter(letter)}\n".encode())
        self.dead_letters += 1


@dataclass(frozen=True)
class _Outcome:
    """Everything of which the result of a run is made.

    Args:
        finished: what the pipeline did.
        workers: among which few files were shared.
        merge: of the records.
        answers: of the run.
    """

    finished: Finished
    workers: int
    merge: _Merge
    answers: AnswerFiles

    def result(self, plan: Plan, clock: Clock, options: list[str]) -> Result:
        """Returns the result of the run that ends now."""
        job, totals, answers = plan.job, self.merge.totals, self.answers
        metrics = answers.evaluation.metrics()
        seconds = dict(clock.timer.seconds)
        return Result(
            folder=plan.folder,
            profile=str(job.profile),
            device=", ".join(sorted(totals.devices)),
            precision=", ".join(sorted(totals.precisions)),
            examples=answers.examples,
            windows=totals.windows,
            resumed_windows=0,
            read_windows=totals.counters.computed_windows,
            float32_windows=totals.counters.float32_windows,
            rescored=totals.rescored,
            reader_windows=totals.reader_windows,
            windows_per_s=totals.windows / seconds[PIPELINE],
            answered=answers.answered,
            dead_letters=self.merge.dead_letters,
            without_gold=answers.evaluation.without_gold,
            text_only=answers.evaluation.text_only,
            truncated_pages=totals.truncated_pages,
            unread_blocks=totals.unread_blocks,
            peak_memory_bytes=clock.peak_memory_bytes(),
            metrics=metrics,
            time={
                **seconds,
                "total_s": sum(seconds.values()),
                "preprocess_s": totals.prepare_s,
            },
            rows=tuple(answers.rows),
            started_at=iso(clock.started),
            ended_at=iso(time.time()),
            machine=machine(),
            threads=job.threads,
            not_comparable=(f"answered by {self.finished.runner}",),
            beam=self._beam(options),
        )

    def _beam(self, options: list[str]) -> dict[str, Any]:
        """Returns runner, job and metrics of the pipeline as JSON values."""
        from nq.beam.flink import flink_job_id

        finished, counters = self.finished, self.finished.counters
        totals = self.merge.totals.counters
        model, load = (finished.distributions.get(name, (0, 0)) for name in (MODEL_S, LOAD_S))
        flink = flink_job_id(options, finished.job_name or "")
        examples, dead_letters = counters.get("examples", 0), counters.get("dead_letters", 0)
        return {
            "runner": finished.runner,
            "job_name": finished.job_name,
            "job_id": finished.job_id,
            **({} if flink is None else {"flink_job_id": flink}),
            "workers": self.workers,
            "metrics": {
                "records": examples + dead_letters,
                "dead_letters": dead_letters,
                "windows": counters.get("windows", 0),
                "parts": model[1],
                "model_s": model[0] / 1e6,
                "models": load[1],
                "load_s": load[0] / 1e3,
                "compile_s": totals.compile_s,
                "warmup_s": totals.warmup_s,
            },
        }
