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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nq import extras, storage, tracking
from nq.errors import DamagedError, Error
from nq.evaluation.answers import AnswerFiles
from nq.evaluation.nq_eval import Gold
from nq.formats import inputs
from nq.formats.input_files import is_uri
from nq.inference.load import ScorerSpec
from nq.inference.scorer import PART_BATCHES, concatenate, feature_rows
from nq.preprocess.features import features
from nq.preprocess.store import UNFINISHED
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import Columns, Example
from nq.runs import record
from nq.runs.against import check_other
from nq.runs.beam_result import Merge, Outcome
from nq.runs.clock import Clock
from nq.runs.job import Job
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
    second_calibration,
)
from nq.storage import atomic_write

if TYPE_CHECKING:
    from nq.beam.runner import Finished


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
        files.set_options(options, [*job.files, *(() if job.temp is None else (job.temp,))])
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
        from nq.beam.files import check_unchanged
        from nq.beam.runner import requested_workers

        job, timer = self.job, clock.timer
        timer.enter(SUBMIT)
        plan = Plan.of(job, (job.request(self.digests),))
        folder = plan.folder
        with storage.hold(folder, storage.RUN, job.sources), _part(folder) as part:
            _check_free(plan)
            tracked.open(record.unfinished_file(folder, plan.description), clock.started)
            with _shared(job, part) as shared:
                options = self._options(folder)
                workers = job.workers or requested_workers(self.options) or 1
                answer = self._pipeline(part, shared, workers, table_rows)
                timer.enter(PIPELINE)
                finished, elements = answer(options=options, progress=progress)
            check_unchanged(self.statuses)
            plan.requests[0].check_unchanged()
            timer.enter(MERGE)
            (folder / JOB).unlink(missing_ok=True)
            merge, answers = Merge(job), AnswerFiles(job.formats)
            with atomic_write(folder / DEAD_LETTERS) as dead_letters:
                answers.write(folder, merge.answers(elements, dead_letters))
            timer.enter(SCORE)
            outcome = Outcome(finished, workers, merge, answers)
            result = outcome.result(plan, clock, options)
            tracked.end_at(time.time())
            result = replace(result, run_id=tracked.run_id)
            write_metrics(folder, result.to_dict())
            # This file marks the run as finished.
            written = written_digests(folder, job.formats)
            described = plan.description | {"files": written, "beam": result.beam}
            storage.write_json(folder / JOB, described)
        size = storage.size(folder, storage.RUN)
        return replace(result, run_bytes=size), answers.evaluation.gold

    def _options(self, folder: Path) -> list[str]:
        """Returns the options with a name of the job, by which it is found in a cluster."""
        if any(re.match("--job_name(=|$)", option) for option in self.options):
            return list(self.options)
        name = re.sub("[^a-z0-9]+", "-", f"nq-answer-{folder.name}".lower()).rstrip("-")
        return [*self.options, f"--job_name={name}-{uuid.uuid4().hex[:8]}"]

    def _pipeline(
        self, part: Path, shared: str, workers: int, table_rows: int
    ) -> Callable[..., tuple[Finished, Iterator[Any]]]:
        """Returns ``answer_questions``, for which the models are copied to ``shared``."""
        from nq.beam.answer import answer_questions
        from nq.beam.files import stage_model

        job = self.job
        spec = self._spec()
        models = [model.folder for model in spec.model.models]
        return partial(
            answer_questions,
            job.files,
            spec,
            part=part,
            shared=shared,
            limit=job.limit,
            pages=job.pages,
            formats=job.formats,
            table_rows=table_rows,
            staged={} if job.temp is None else {one: stage_model(one, shared) for one in models},
            readers=workers,
        )

    def _spec(self) -> ScorerSpec:
        """Returns the description of the scorer, with windows on which it is calibrated."""
        job, calibration = self.job, dict[Path, Columns]()
        if job.optimizations.changes.int8:
            calibration = {job.model.folder: _calibration(job), **second_calibration(job)}
        spec = ScorerSpec(job.model, job.optimizations, job.batch_size, job.threads, calibration)
        return spec.in_folders({one.folder: one.folder.absolute() for one in job.model.models})


def _calibration(job: Job) -> Columns:
    """Returns windows of the first examples; those on which a run without Beam is calibrated."""
    from nq.beam.files import read_records

    tokenizer, windows = load_tokenizer(job.model.folder, job.model.windows.compat), list[Columns]()
    enough, count = PART_BATCHES * job.batch_size, 0
    for path in job.files:
        for _, item in read_records(path, pages=job.pages):
            if count >= enough:
                break
            if isinstance(item, Example):
                windows.append(feature_rows(features(item, tokenizer, job.model.windows)))
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
        found = storage.read_json(folder / JOB)
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
    own = storage.own_paths(folder, storage.RUN)
    storage.remove([path for path in own if path.relative_to(folder).parts[0].startswith(prefix)])


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
