"""A run whose questions a runner of Beam answers, on this machine or on a cluster.

The workers read, score and decide; this process merges what they wrote, in the order of the input,
into the files of a run without Beam. A run that was interrupted begins again.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nq import extras, storage
from nq.evaluation.answer_files import Answered
from nq.formats.input_files import Files, is_uri, shown
from nq.inference.scorer import Counters
from nq.preprocess.prepared import Request
from nq.preprocess.shards import encode_dead_letter
from nq.questions import Ids, Questions
from nq.records import DeadLetter
from nq.runs.config import Beam
from nq.runs.folder import RunFolder
from nq.runs.job import Job
from nq.runs.measure import MERGE, PIPELINE, SUBMIT, Clock, Totals
from nq.runs.scoring import Executor, RunAnswers, RunProgress

if TYPE_CHECKING:
    from nq.beam.runner import Finished
    from nq.beam.score import Decided

MODEL_S = "inference_batch_latency_micro_secs"
LOAD_S = "load_model_latency_milli_secs"
"""Distributions of Beam's ``RunInference``."""


class BeamExecutor(Executor):
    """Answers a job by the workers of a runner; progress counts examples."""

    labels = "answer", "examples"

    def __init__(self, beam: Beam) -> None:
        self.beam, self.options = beam, (f"--runner={beam.runner}", *beam.options)

    def files(self, job: Job) -> Files:
        """Returns the files that the workers read, after the options of Beam are checked."""
        extras.require("beam")
        from nq.beam.files import BEAM, set_options
        from nq.beam.runner import check_flink

        set_options(self.options, [*job.files, *([self.beam.temp] if self.beam.temp else [])])
        check_flink(self.options)
        return BEAM

    @contextlib.contextmanager
    def open_answers(
        self, job: Job, request: Request, folder: RunFolder, clock: Clock, progress: RunProgress
    ) -> Iterator[RunAnswers]:
        clock.enter(SUBMIT)
        folder.check_free()
        parts = folder.path.glob(f"{storage.UNFINISHED}*")  # of killed commands
        killed = [one for one in parts if storage.kind_of(one) == storage.PART.name]
        with storage.unfinished(folder.path) as part, _shared(self.beam, part, killed) as shared:
            yield Pipeline(self, job, request.questions, part, str(shared), clock, progress)


@dataclass(eq=False)
class Pipeline(RunAnswers):
    """A pipeline of Beam, which runs when its answers are read."""

    executor: BeamExecutor
    job: Job
    questions: Questions
    part: Path
    shared: str
    clock: Clock
    progress: RunProgress
    computed: Totals = field(default_factory=Totals)

    def totals(self) -> Totals:
        return self.computed

    def answers(self, table_rows: int) -> Iterator[Answered | bytes]:
        from nq.beam.files import absolute, stage_model
        from nq.beam.pipelines import answering, run_in_order
        from nq.beam.runner import requested_workers
        from nq.beam.score import Decide
        from nq.beam.transforms import ReadQuestions

        job = self.job
        questions = self.questions
        options = [*self.executor.options]
        if not any(re.match("--job_name(=|$)", option) for option in options):
            # a name by which the job is found in a cluster, with that of the folder of the run
            run = f"nq-answer-{self.part.parent.name}"
            name = re.sub("[^a-z0-9]+", "-", run.lower()).rstrip("-")
            options.append(f"--job_name={name}-{uuid.uuid4().hex[:8]}")
        workers = job.compute.workers or requested_workers(options) or 1
        spec = job.scorer.calibrated(questions.examples)
        models = {one.folder: one.folder.absolute() for one in spec.model.parts}
        copied = () if self.executor.beam.temp is None else models.values()
        staged = {one: stage_model(one, self.shared) for one in copied}
        self.clock.enter(PIPELINE)
        if pages := questions.pages:
            names = tuple(map(absolute, pages.files))
            pages = replace(pages, folder=absolute(pages.folder), files=names)
        read = ReadQuestions([*map(absolute, questions.files)], job.limit, workers, pages=pages)
        decide = Decide(spec.model.decision, job.formats, table_rows > 0)
        steps = answering(spec.in_folders(models), staged, decide)
        finished, elements = run_in_order(
            read, steps, options, self.part, self.shared, self.progress
        )
        questions.check_same()
        self.clock.enter(MERGE)
        yield from _merge(questions.files, elements, self.computed, table_rows)
        self.beam = _description(finished, workers, self.computed.counters)


def _merge(
    files: Sequence[str], items: Iterable[Decided | DeadLetter], totals: Totals, table_rows: int
) -> Iterator[Answered | bytes]:
    """Yields the answers of the workers and the lines of the dead letters, in order.

    What the workers did is added to ``totals``; the first ``table_rows`` answers keep their rows.
    """
    ids = Ids()
    n_answers = 0
    for element in items:
        path = shown(files[element.source.file_index])
        item = replace(element, source=replace(element.source, path=path))
        letter: DeadLetter | None
        if isinstance(item, DeadLetter):
            letter = item
        else:
            key = item.answered.judgment.prediction.example_id
            work = item.work
            letter = ids.repeated(item.source, key, item.question)
            totals.prepare_s += work.prepare_s
            totals.devices.add(work.device)
            totals.precisions.add(work.precision)
            if work.part is not None:
                totals.counters.add(work.part)
            if letter is None:
                totals.windows += work.windows
                totals.unread_blocks += work.unread_blocks
                totals.truncated_pages += work.unread_blocks > 0
                totals.reader_windows += work.reader_windows
                totals.rescored += work.rescored
                n_answers += 1
                keeps_row = n_answers <= table_rows
                yield item.answered if keeps_row else replace(item.answered, row=None)
                continue
        totals.dead_letters += 1
        yield f"{encode_dead_letter(letter)}\n".encode()


def _description(finished: Finished, workers: int, counters: Counters) -> dict[str, Any]:
    """Returns runner, job and metrics of a pipeline as JSON values."""
    counts = finished.counters
    model, load = (finished.distributions.get(name, (0, 0)) for name in (MODEL_S, LOAD_S))
    return {
        "runner": finished.runner,
        "job_name": finished.job_name,
        "job_id": finished.job_id,
        "workers": workers,
        "metrics": {
            "records": counts["examples"] + counts["dead_letters"],
            "dead_letters": counts["dead_letters"],
            "windows": counts["windows"],
            "parts": model[1],
            "model_s": model[0] / 1e6,
            "models": load[1],
            "load_s": load[0] / 1e3,
            "compile_s": counters.compile_s,
            "warmup_s": counters.warmup_s,
        },
    }


def _shared(
    beam: Beam, part: Path, killed: Sequence[Path]
) -> contextlib.AbstractContextManager[str | Path]:
    """Returns a folder that all workers see: ``part``, or a new one in the job's shared folder.

    Under a URI, which has no locks, it has the name of ``part``, so that those of parts of killed
    commands are known; they are removed.
    """
    from nq.beam.files import check_no_pattern, new_folder

    if beam.temp is None:
        check_no_pattern(part.parent)
        return contextlib.nullcontext(part)
    if is_uri(beam.temp):
        return new_folder(beam.temp, *(f"nq-{one.name[-12:]}" for one in (part, *killed)))
    check_no_pattern(Path(beam.temp))
    return storage.unfinished(Path(beam.temp))
