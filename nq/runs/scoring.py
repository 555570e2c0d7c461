"""Scores all windows of a job, continuing where an equal job was interrupted.

Memory does not grow with the input: a few examples are in memory at a time.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import IO

from nq import storage
from nq.beam.prepare import check_output, prefetch
from nq.evaluation.answers import Answered, answer
from nq.formats import input_files, inputs
from nq.inference.chain import answers
from nq.inference.instances import InstanceDiedError, InstancePool, warn_if_too_few_cores
from nq.inference.load import load_scorer
from nq.inference.profile import TENSORFLOW
from nq.inference.scorer import Scorer, score_examples
from nq.model.runtime import import_tensorflow
from nq.preprocess.store import encode_dead_letter
from nq.records import DeadLetter, Example, ExampleId, Scores, Source, Windowed
from nq.runs.chunks import Chunks
from nq.runs.job import Job
from nq.runs.measure import POSTPROCESS, READ, Clock, Totals, no_report
from nq.runs.parity import check_other
from nq.runs.plan import Plan, check_job, windows_folder
from nq.runs.score_store import ScoreStore, StoringScorer

RunProgress = Callable[[int, int], None]
"""Receives the windows that have just been completed, and how many there are so far."""


class Scoring:
    """The questions of a job, their scores and their answers.

    Scores that are not in the store are computed when they are needed for the first time, several
    examples at a time, and only then is progress reported; later ones are read from the store.
    """

    pipeline = None

    def __init__(
        self, job: Job, chunks: Chunks, scorer: StoringScorer, clock: Clock, progress: RunProgress
    ) -> None:
        self.job, self.chunks, self.scorer, self.store = job, chunks, scorer, scorer.store
        self.rescored = self.second_model_windows = 0
        self._duplicates: list[DeadLetter] = []
        self._clock, self._progress, self._lock = clock, progress, threading.Lock()
        self._is_complete = False

    def __iter__(self) -> Iterator[tuple[Example, Scores]]:
        for scored in score_examples(self.scorer, self._examples(), self._on_windows):
            yield scored.example, scored.scores
        self._is_complete = True

    def answers(self, table_rows: int, dead_letters: IO[bytes]) -> Iterator[Answered]:
        """Yields the answers to the questions in order, and writes the lines of the dead letters.

        The first ``table_rows`` answers have a row of the table of answers. The last dead letters
        are the records with the id of an earlier one, which are not answered.
        """
        decision, formats = self.job.model.decision, self.job.formats
        decided = answers(self.scorer, self._examples(), decision, self._on_windows)
        for number, (scored, ranked) in enumerate(decided):
            self.rescored += scored.rescored
            self.second_model_windows += scored.second_model_windows
            yield answer(scored.example, ranked, formats, number < table_rows)
        for chunk in self.chunks.ready:
            with chunk.dead_letter_file.open("rb") as lines:
                dead_letters.writelines(lines)
        for letter in self._duplicates:
            dead_letters.write(f"{encode_dead_letter(letter)}\n".encode())

    @property
    def windows_bytes(self) -> int:
        return sum(storage.size(chunk.folder, storage.WINDOWS) for chunk in self.chunks.ready)

    def _examples(self) -> Iterator[Windowed]:
        """Yields each example that is the first of its id with its windows."""
        self._duplicates.clear()
        seen, examples = set[ExampleId](), iter(self.chunks)
        while True:
            with self._clock(READ):
                one = next(examples, None)
            if one is None:
                break
            example = one.example
            if example.example_id not in seen:
                seen.add(example.example_id)
                yield one
                continue
            letter = duplicate(one.source, example.example_id, example.question)
            self._duplicates.append(letter)
            self._on_windows(len(one))

    def totals(self) -> Totals:
        chunks, scorer = self.chunks, self.scorer
        return Totals(
            windows=chunks.total("windows"),
            resumed_windows=scorer.resumed_windows,
            second_model_windows=self.second_model_windows,
            rescored=self.rescored,
            dead_letters=chunks.total("dead_letters") + len(self._duplicates),
            truncated_pages=chunks.total("truncated_pages"),
            unread_blocks=chunks.total("unread_blocks"),
            prepare_s=sum(chunk.seconds for chunk in chunks.ready if not chunk.reused),
            devices={scorer.device},
            precisions={scorer.precision},
            counters=scorer.counters,
        )

    def _on_windows(self, windows: int) -> None:
        with self._lock:  # instances complete windows in several threads
            if not self._is_complete:
                self._progress(windows, self.chunks.total("windows"))


def duplicate(source: Source, example_id: ExampleId, question: str) -> DeadLetter:
    """Returns the dead letter of a record with the id of an earlier one."""
    reason = f"example_id {example_id} occurs twice; the first record is used"
    return DeadLetter(source, reason, question[: inputs.EXCERPT_CHARS])


class LocalRun:
    """A job that this process and its instances answer, whose input files are found and checked.

    Standard input and pipes are copied to files, which ``copies`` removes.
    """

    def __init__(self, job: Job, copies: contextlib.ExitStack) -> None:
        files = copies.enter_context(input_files.input_files(job.files))
        job = replace(job, files=tuple(files))
        job.check_output()
        check_other(job)
        check_job(job)
        self.plan = Plan(job)

    @contextlib.contextmanager
    def open(self, clock: Clock, progress: RunProgress) -> Iterator[Scoring]:
        """Opens the scoring of a job, whose times are kept until the block ends."""
        with (
            open_scoring(self.plan, clock, progress) as scoring,
            clock.kept(scoring.store.memo, scoring.totals),
        ):
            clock.enter(POSTPROCESS)
            yield scoring


@contextlib.contextmanager
def open_scoring(plan: Plan, clock: Clock, progress: RunProgress = no_report) -> Iterator[Scoring]:
    """Loads the model of a job while its windows are prepared, and opens the store of its scores.

    Until the block ends no other run may write to the folder.
    """
    job = plan.job
    parent = job.output or job.root
    work = [(request, windows_folder(parent, request)) for request in plan.requests]
    for request, folder in work:
        check_output(request, folder)
    with (
        storage.hold(plan.folder, storage.RUN, job.sources),
        prefetch(work, job.compute.workers) as prepared,
    ):
        chunks = Chunks(prepared, work, job.compute.workers, clock)
        with _open_scorer(job, chunks) as scorer:
            store = ScoreStore(plan.folder / storage.WORK, plan.scores)
            yield Scoring(job, chunks, StoringScorer(scorer, store, clock), clock, progress)


@contextlib.contextmanager
def _open_scorer(job: Job, chunks: Chunks) -> Iterator[Scorer]:
    """Loads the model of a job, in this process or in its instances, which end with the block."""
    threads = job.compute.threads
    spec = job.scorer.calibrated(lambda: (one.example for one in chunks.examples(0)))
    if job.instances is None:
        if threads is not None:
            warn_if_too_few_cores(1, threads)
        if spec.profile.changes.engine == TENSORFLOW:  # others may have a converted graph
            import_tensorflow(threads)
        yield load_scorer(spec)
        return
    try:
        with InstancePool(spec, job.instances, threads or 1) as pool:
            yield pool
    except InstanceDiedError as error:
        advice = "run the same command again to resume, with fewer instances if memory was full"
        raise InstanceDiedError(f"{error}: {advice}") from error
