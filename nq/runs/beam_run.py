"""A run whose questions a runner of Beam answers, on this machine or on a cluster.

The workers read, score and decide; this process merges what they wrote, in the order of the input,
into the files of a run without Beam. A run that was interrupted begins again.
"""

from __future__ import annotations

import contextlib
import glob
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from nq import extras, storage
from nq.errors import DamagedError, Error
from nq.evaluation.answers import Answered
from nq.formats import inputs
from nq.formats.input_files import is_uri, shown
from nq.inference.scorer import Counters
from nq.preprocess.store import encode_dead_letter
from nq.records import DeadLetter, ExampleId
from nq.runs.config import Beam
from nq.runs.job import Job
from nq.runs.measure import MERGE, PIPELINE, SUBMIT, Clock, Totals
from nq.runs.parity import check_other
from nq.runs.plan import Plan, check_job
from nq.runs.result import JOB
from nq.runs.scoring import RunProgress, duplicate

if TYPE_CHECKING:
    from nq.beam.runner import Finished
    from nq.beam.score import Decided

MODEL_S, LOAD_S = "inference_batch_latency_micro_secs", "load_model_latency_milli_secs"
"""Distributions of Beam's ``RunInference``."""


class BeamRun:
    """A job that a runner of Beam answers, whose input files are found and checked.

    Its ``pipeline`` is ``Result.beam``, known when all answers are.
    """

    store, windows_bytes = None, 0

    def __init__(self, job: Job, beam: Beam) -> None:
        extras.require("beam")
        from nq.beam import files
        from nq.beam.flink import check_flink

        self._beam, self._options = beam, (f"--runner={beam.runner}", *beam.options)
        files.set_options(self._options, [*job.files, *([beam.temp] if beam.temp else [])])
        check_flink(self._options)
        check_job(job)
        found = files.find_files(job.files)
        job = replace(job, files=tuple(found))
        job.check_output()
        self._statuses = {path: files.status(path) for path in found if is_uri(path)}
        digests = files.check_and_digest(found, job.limit, job.pages)
        check_other(job, digests)
        if not self._statuses:
            inputs.mention_unnamed_pages(found, job.pages)
        self.plan = Plan(job, (job.request(digests),))
        self._totals, self.pipeline = Totals(), dict[str, Any]()

    @contextlib.contextmanager
    def open(self, clock: Clock, progress: RunProgress) -> Iterator[Self]:
        """Opens the folders of a run, which no other run may write to until the block ends.

        Progress counts examples, not windows.
        """
        clock.enter(SUBMIT)
        folder = self.plan.folder
        parts = folder.glob(f"{storage.UNFINISHED}*")  # of killed commands, else hold raises
        killed = [one for one in parts if storage.kind_of(one, or_copy=False) == storage.PART.name]
        with (
            storage.hold(folder, storage.RUN, self.plan.job.sources),
            storage.unfinished(folder) as part,
        ):
            _check_free(self.plan)
            with _shared(self._beam, part, killed) as shared:
                self._clock, self._progress = clock, progress
                self._part, self._shared = part, str(shared)
                yield self

    def totals(self) -> Totals:
        return self._totals

    def answers(self, table_rows: int, dead_letters: IO[bytes]) -> Iterator[Answered]:
        """Runs the pipeline; yields the answers in order, and writes the lines of the dead letters.

        The first ``table_rows`` answers have a row of the table of answers.
        """
        from nq.beam.files import absolute, check_unchanged, stage_model
        from nq.beam.pipelines import answering, run_in_order
        from nq.beam.runner import requested_workers
        from nq.beam.score import Decide
        from nq.beam.transforms import ReadQuestions

        plan, job, options = self.plan, self.plan.job, list(self._options)
        if not any(re.match("--job_name(=|$)", option) for option in options):
            # a name by which the job is found in a cluster
            name = re.sub("[^a-z0-9]+", "-", f"nq-answer-{plan.folder.name}".lower()).rstrip("-")
            options.append(f"--job_name={name}-{uuid.uuid4().hex[:8]}")
        workers = job.compute.workers or requested_workers(self._options) or 1
        spec = job.scorer.calibrated(job.examples)
        models = {one.folder: one.folder.absolute() for one in spec.model.models}
        copied = () if self._beam.temp is None else models.values()
        staged = {one: stage_model(one, self._shared) for one in copied}
        self._clock.enter(PIPELINE)
        if pages := job.pages:
            names = tuple(map(absolute, pages.files))
            pages = replace(pages, folder=absolute(pages.folder), files=names)
        questions = ReadQuestions([*map(absolute, job.files)], job.limit, workers, pages=pages)
        decide = Decide(spec.model.decision, job.formats, table_rows > 0)
        steps = answering(spec.in_folders(models), staged, decide)
        finished, elements = run_in_order(
            questions, steps, options, self._part, self._shared, self._progress
        )
        check_unchanged(self._statuses)
        plan.requests[0].check_unchanged()
        self._clock.enter(MERGE)
        yield from _merge(job.files, elements, self._totals, dead_letters, table_rows)
        self.pipeline = _description(finished, options, workers, self._totals.counters)


def _merge(
    files: Sequence[str],
    items: Iterable[Decided | DeadLetter],
    totals: Totals,
    dead_letters: IO[bytes],
    table_rows: int,
) -> Iterator[Answered]:
    """Yields the answers of the workers, in the order of the input, and writes the dead letters.

    The last ones are the records with the id of an earlier one, which are not answered. What the
    workers did is added to ``totals``.
    """

    def write(letter: DeadLetter) -> None:
        dead_letters.write(f"{encode_dead_letter(letter)}\n".encode())
        totals.dead_letters += 1

    seen, duplicates = set[ExampleId](), list[DeadLetter]()
    for element in items:
        path = shown(files[element.source.file_index])
        item = replace(element, source=replace(element.source, path=path))
        if isinstance(item, DeadLetter):
            write(item)
            continue
        key, work = item.answered.judgment.example_id, item.work
        is_answered = key not in seen
        totals.windows += work.windows
        totals.unread_blocks += work.unread_blocks
        totals.truncated_pages += work.unread_blocks > 0
        totals.second_model_windows += work.second_model_windows * is_answered
        totals.rescored += work.rescored * is_answered
        totals.prepare_s += work.prepare_s
        totals.devices.add(work.device)
        totals.precisions.add(work.precision)
        for name, value in vars(work.part).items() if work.part else ():
            setattr(totals.counters, name, getattr(totals.counters, name) + value)
        if is_answered:
            seen.add(key)
            keeps_row = len(seen) <= table_rows
            yield item.answered if keeps_row else replace(item.answered, row=None)
        else:
            duplicates.append(duplicate(item.source, key, item.question))
    for letter in duplicates:
        write(letter)


def _description(
    finished: Finished, options: Sequence[str], workers: int, counters: Counters
) -> dict[str, Any]:
    """Returns runner, job and metrics of a pipeline as JSON values."""
    from nq.beam.flink import flink_job_id

    counts = finished.counters
    model, load = (finished.distributions.get(name, (0, 0)) for name in (MODEL_S, LOAD_S))
    flink = flink_job_id(options, finished.job_name or "")
    examples, dead_letters = counts.get("examples", 0), counts.get("dead_letters", 0)
    return {
        "runner": finished.runner,
        "job_name": finished.job_name,
        "job_id": finished.job_id,
        **({} if flink is None else {"flink_job_id": flink}),
        "workers": workers,
        "metrics": {
            "records": examples + dead_letters,
            "dead_letters": dead_letters,
            "windows": counts.get("windows", 0),
            "parts": model[1],
            "model_s": model[0] / 1e6,
            "models": load[1],
            "load_s": load[0] / 1e3,
            "compile_s": counters.compile_s,
            "warmup_s": counters.warmup_s,
        },
    }


def _check_free(plan: Plan) -> None:
    """Checks that a folder has no run that this one would overwrite."""
    folder = plan.folder
    if (folder / storage.WORK).is_dir():
        raise Error(f"{folder} has an unfinished run without --runner: give another --output")
    try:
        found = storage.read_json(folder / JOB)
    except FileNotFoundError:
        return
    except DamagedError as error:
        raise Error(f"{error}: give another --output") from error
    if any(found.get(name) != value for name, value in plan.description.items()):
        raise Error(f"{folder} has the finished run of another job: give another --output")


def _shared(
    beam: Beam, part: Path, killed: Sequence[Path]
) -> contextlib.AbstractContextManager[str | Path]:
    """Returns a folder that all workers see: ``part``, or a new one in the job's shared folder.

    Under a URI, which has no locks, it has the name of ``part``, so that those of parts of killed
    commands are known; they are removed.
    """
    if beam.temp is not None and is_uri(beam.temp):
        from nq.beam.files import new_folder

        return new_folder(beam.temp, *(f"nq-{one.name[-12:]}" for one in (part, *killed)))
    place, option = (part.parent, "output") if beam.temp is None else (Path(beam.temp), "temp")
    if glob.escape(str(place)) != str(place):
        raise Error(f"Beam takes *, ? and [ in {place} for patterns: give another --{option}")
    return contextlib.nullcontext(part) if beam.temp is None else storage.unfinished(place)
