"""A run whose questions a runner of Beam answers, on this machine or on a cluster.

The workers read, score and decide; this process merges what they wrote, in the order of the input,
into the files of a run without Beam. A run that was interrupted begins again.
"""

from __future__ import annotations

import contextlib
import glob
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from nq import extras, storage, tracking
from nq.config import Beam
from nq.errors import DamagedError, Error
from nq.evaluation.answers import Answered
from nq.evaluation.nq_eval import Gold
from nq.formats import inputs
from nq.formats.input_files import is_uri, shown
from nq.inference.load import ScorerSpec
from nq.preprocess.store import UNFINISHED, encode_dead_letter
from nq.records import DeadLetter, Example, ExampleId
from nq.runs import record
from nq.runs.job import Job
from nq.runs.measure import MERGE, PIPELINE, SUBMIT, Clock, Totals
from nq.runs.parity import check_other
from nq.runs.plan import Plan, check_job
from nq.runs.result import JOB, UNFINISHED_SCORES, Result, finish
from nq.runs.scoring import RunProgress, duplicate, scorer_spec

if TYPE_CHECKING:
    from nq.beam.runner import Finished
    from nq.beam.score import Decided, Work

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
    beam: Beam
    options: tuple[str, ...]
    digests: Mapping[str, str]
    statuses: Mapping[str, Any]

    @classmethod
    def of(cls, job: Job, beam: Beam) -> BeamRun:
        """Finds and checks the input files of a job."""
        extras.require("beam")
        from nq.beam import files
        from nq.beam.flink import check_flink

        options = (f"--runner={beam.runner}", *beam.options)
        files.set_options(options, [*job.files, *([beam.temp] if beam.temp else [])])
        check_flink(options)
        check_job(job, has_files=False)
        found = files.find_files(job.files)
        job = replace(job, files=tuple(found))
        job.check_output()
        statuses = {path: files.status(path) for path in found if is_uri(path)}
        digests = files.check(found, job.limit, job.pages)
        check_other(job, digests)
        if not statuses:
            inputs.mention_unnamed_pages(found, job.pages)
        return cls(job, beam, options, digests, statuses)

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

        job = self.job
        clock.enter(SUBMIT)
        plan = Plan.of(job, (job.request(self.digests),))
        folder = plan.folder
        with storage.hold(folder, storage.RUN, job.sources), _part(folder) as part:
            _check_free(plan)
            tracked.open(record.unfinished_file(folder, plan.description), clock.started)
            with _shared(self.beam, part) as shared:
                options = self._options(folder)
                workers = job.compute.workers or requested_workers(self.options) or 1
                answer = self._pipeline(part, shared, workers, table_rows)
                clock.enter(PIPELINE)
                finished, elements = answer(options=options, progress=progress)
            check_unchanged(self.statuses)
            plan.requests[0].check_unchanged()
            clock.enter(MERGE)
            merge = _Merge(job.files, options, workers, finished, elements)
            return finish(
                plan, clock, tracked, answers=merge.answers, totals=merge.totals, beam=merge.beam
            )

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
        from nq.beam.files import stage_model
        from nq.beam.pipelines import answer_questions

        job, beam = self.job, self.beam
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
            staged={} if beam.temp is None else {one: stage_model(one, shared) for one in models},
            readers=workers,
        )

    def _spec(self) -> ScorerSpec:
        """Returns the description of the scorer, with absolute paths."""
        from nq.beam.files import read_records

        def read() -> Iterator[Example]:
            for path in self.job.files:
                for _, item in read_records(path, pages=self.job.pages):
                    if isinstance(item, Example):
                        yield item

        spec = scorer_spec(self.job, read)
        return spec.in_folders({one.folder: one.folder.absolute() for one in spec.model.models})


class _Merge:
    """Divides the elements of the workers into answers and dead letters.

    Args:
        files: of the job.
        options: of Beam.
        workers: among which few files were shared.
        finished: what the pipeline did.
        elements: the answers and dead letters, in the order of the input.
    """

    def __init__(
        self,
        files: Sequence[str],
        options: Sequence[str],
        workers: int,
        finished: Finished,
        elements: Iterable[Decided | DeadLetter],
    ) -> None:
        self._files, self._options, self._workers = files, options, workers
        self._finished, self._elements = finished, elements
        self._totals = Totals()

    def answers(self, dead_letters: IO[bytes]) -> Iterator[Answered]:
        def write(letter: DeadLetter) -> None:
            dead_letters.write(f"{encode_dead_letter(letter)}\n".encode())
            self._totals.dead_letters += 1

        seen, duplicates = set[ExampleId](), list[DeadLetter]()
        for element in self._elements:
            path = shown(self._files[element.source.file_index])
            item = replace(element, source=replace(element.source, path=path))
            if isinstance(item, DeadLetter):
                write(item)
                continue
            key = item.answered.judgment.example_id
            self._add(item.work, key not in seen)
            if key in seen:
                duplicates.append(duplicate(item.source, key, item.question))
                continue
            seen.add(key)
            yield item.answered
        for letter in duplicates:
            write(letter)

    def _add(self, work: Work, is_answered: bool) -> None:
        """Adds what was done for one example, which is not answered if it repeats an id."""
        totals = self._totals
        totals.windows += work.windows
        totals.unread_blocks += work.unread_blocks
        totals.truncated_pages += work.unread_blocks > 0
        totals.reader_windows += work.reader_windows * is_answered
        totals.rescored += work.rescored * is_answered
        totals.prepare_s += work.prepare_s
        totals.devices.add(work.device)
        totals.precisions.add(work.precision)
        for name, value in vars(work.part).items() if work.part else ():
            setattr(totals.counters, name, getattr(totals.counters, name) + value)

    def totals(self) -> Totals:
        return self._totals

    def beam(self) -> dict[str, Any]:
        from nq.beam.flink import flink_job_id

        finished, counters = self._finished, self._finished.counters
        model, load = (finished.distributions.get(name, (0, 0)) for name in (MODEL_S, LOAD_S))
        flink = flink_job_id(self._options, finished.job_name or "")
        examples, dead_letters = counters.get("examples", 0), counters.get("dead_letters", 0)
        return {
            "runner": finished.runner,
            "job_name": finished.job_name,
            "job_id": finished.job_id,
            **({} if flink is None else {"flink_job_id": flink}),
            "workers": self._workers,
            "metrics": {
                "records": examples + dead_letters,
                "dead_letters": dead_letters,
                "windows": counters.get("windows", 0),
                "parts": model[1],
                "model_s": model[0] / 1e6,
                "models": load[1],
                "load_s": load[0] / 1e3,
                "compile_s": self._totals.counters.compile_s,
                "warmup_s": self._totals.counters.warmup_s,
            },
        }


def _check_free(plan: Plan) -> None:
    """Checks that a folder has no run that this one would overwrite."""
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
def _shared(beam: Beam, part: Path) -> Iterator[str]:
    """Yields the folder that all workers see: ``part``, or a new one in that of the job."""
    if beam.temp is not None:
        from nq.beam.files import absolute, new_folder

        with new_folder(absolute(beam.temp), f"nq-{uuid.uuid4().hex[:12]}") as folder:
            yield folder
        return
    if glob.escape(str(part)) != str(part):
        raise Error(f"Beam takes *, ? and [ in {part.parent} for patterns: give another --output")
    yield str(part)
