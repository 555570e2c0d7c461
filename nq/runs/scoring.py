"""Scores all windows of a job, continuing where an equal job was interrupted.

Memory does not grow with the input: a few examples are in memory at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from nq import storage
from nq.beam.prepare import Work, check_output, prefetch, prepare_again
from nq.errors import DamagedError, Error
from nq.formats import inputs
from nq.inference.instances import InstanceDiedError, InstancePool, warn_if_too_few_cores
from nq.inference.load import ScorerSpec, load_scorer
from nq.inference.scorer import PART_BATCHES, Scorer, concatenate, feature_rows
from nq.model.runtime import import_tensorflow
from nq.model.spec import ModelSpec
from nq.preprocess.features import features
from nq.preprocess.store import Prepared, encode_dead_letter
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import Columns, DeadLetter, Example, ExampleId, Scores, Source
from nq.runs.job import Job
from nq.runs.measure import READ, WAIT, Clock, Totals, no_report
from nq.runs.plan import Plan, windows_folder
from nq.runs.result import UNFINISHED_SCORES
from nq.runs.score_store import ScoreStore, StoringScorer

CALIBRATION_WINDOWS = 64

RunProgress = Callable[[int, int], None]
"""Receives the windows that have just been completed, and how many there are so far."""


class Chunks:
    """The prepared chunks of a job's files, in order; waits for each when it is needed.

    Each chunk has a request and a folder in ``work``, and is prepared again by ``workers``
    processes if it is damaged. The clock gets the time of waiting.
    """

    def __init__(
        self, prepared: Iterator[Prepared], work: Work, workers: int | None, clock: Clock
    ) -> None:
        self.ready: list[Prepared] = []
        self._prepared, self._work, self._workers = prepared, work, workers
        self._clock = clock

    def __len__(self) -> int:
        return len(self._work)

    def __getitem__(self, number: int) -> Prepared:
        while len(self.ready) <= number:
            with self._clock(WAIT):
                self.ready.append(next(self._prepared))
        return self.ready[number]

    def examples(self, number: int) -> Iterator[tuple[Source, Example, Columns]]:
        """Yields the examples of a chunk with the rows of their windows.

        A chunk that is damaged is prepared again once.
        """
        done, (request, folder) = 0, self._work[number]
        try:
            for item in self[number].read(request):
                yield item
                done += 1
            return
        except DamagedError as damage:
            with self._clock(WAIT):
                self.ready[number] = prepare_again(request, folder, damage, self._workers)
        yield from islice(self[number].read(request), done, None)

    def total(self, name: str) -> int:
        """Returns the sum of a count of ``Prepared`` over the chunks so far."""
        return sum(getattr(chunk, name) for chunk in self.ready)


class Scoring:
    """The windows of a job and their scores; iterating yields each example with its scores.

    The first iteration computes what is not in the store, several examples at a time, and reports
    progress. Later ones read the store.
    """

    def __init__(
        self,
        chunks: Chunks,
        scorer: Scorer,
        store: ScoreStore,
        clock: Clock,
        progress: RunProgress = no_report,
    ) -> None:
        self.chunks, self.store = chunks, store
        self._duplicates: list[DeadLetter] = []
        self._scorer = StoringScorer(scorer, store, clock, self._on_windows)
        self._clock, self._progress = clock, progress
        self._is_complete = False

    def __iter__(self) -> Iterator[tuple[Example, Scores]]:
        self._duplicates.clear()
        yield from self._scorer.score(self._windows())
        self._is_complete = True

    def _windows(self) -> Iterator[tuple[Example, Columns]]:
        """Yields each example that is the first of its id with the rows of its windows."""
        seen = set[ExampleId]()
        for number in range(len(self.chunks)):
            examples = self.chunks.examples(number)
            while True:
                with self._clock(READ):
                    source, example, rows = next(examples, (None, None, {}))
                if source is None or example is None:
                    break
                if example.example_id not in seen:
                    seen.add(example.example_id)
                    yield example, rows
                    continue
                self._duplicates.append(duplicate(source, example.example_id, example.question))
                self._on_windows(len(rows["window_ids"]))

    def dead_letters(self) -> Iterator[bytes]:
        """Yields the lines of all dead letters, once all examples are scored.

        Records with the id of an earlier one, which are not answered, are the last ones.
        """
        for chunk in self.chunks.ready:
            with chunk.dead_letter_file.open("rb") as lines:
                yield from lines
        for letter in self._duplicates:
            yield f"{encode_dead_letter(letter)}\n".encode()

    def totals(self) -> Totals:
        """Returns what was computed so far."""
        chunks, inner = self.chunks, self._scorer.inner
        return Totals(
            windows=chunks.total("windows"),
            resumed_windows=self._scorer.resumed_windows,
            second_model_windows=self._scorer.second_model_windows,
            rescored=self._scorer.rescored,
            dead_letters=chunks.total("dead_letters") + len(self._duplicates),
            truncated_pages=chunks.total("truncated_pages"),
            unread_blocks=chunks.total("unread_blocks"),
            prepare_s=sum(chunk.seconds for chunk in chunks.ready if not chunk.reused),
            devices={inner.device},
            precisions={inner.precision},
            counters=inner.counters,
        )

    def _on_windows(self, windows: int) -> None:
        if not self._is_complete:
            self._progress(windows, self.chunks.total("windows"))


def duplicate(source: Source, example_id: ExampleId, question: str) -> DeadLetter:
    """Returns the dead letter of a record with the id of an earlier one."""
    reason = f"example_id {example_id} occurs twice; the first record is used"
    return DeadLetter(source, reason, question[: inputs.EXCERPT_CHARS])


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
            store = ScoreStore.open(plan.folder / UNFINISHED_SCORES, plan.scores)
            yield Scoring(chunks, scorer, store, clock, progress)


@contextlib.contextmanager
def _open_scorer(job: Job, chunks: Chunks) -> Iterator[Scorer]:
    """Loads the model of a job, in this process or in its instances, which end with the block."""
    threads = job.compute.threads
    spec = scorer_spec(job, lambda: (example for _, example, _ in chunks.examples(0)))
    if job.instances is None:
        if threads is not None:
            warn_if_too_few_cores(1, threads)
        import_tensorflow(threads)
        yield load_scorer(spec)
        return
    try:
        with InstancePool(spec, job.instances, threads or 1) as pool:
            yield pool
    except InstanceDiedError as error:
        raise InstanceDiedError(
            f"{error}: run the same command again to resume, with fewer instances if the memory "
            "was full"
        ) from error


def scorer_spec(job: Job, read: Callable[[], Iterator[Example]]) -> ScorerSpec:
    """Returns the description of a job's scorer, with the windows on which it is calibrated.

    Args:
        job: with a chosen profile.
        read: yields the examples of the job, from the first one at each call.
    """
    profile, compute = job.optimizations, job.compute
    calibration: dict[Path, Columns] = {}
    for model in job.model.models if profile.changes.int8 else ():
        calibration[model.folder] = calibration_rows(read(), model, compute.batch_size)
    return ScorerSpec(job.model, profile, compute.batch_size, compute.threads, calibration)


def calibration_rows(examples: Iterator[Example], model: ModelSpec, batch_size: int) -> Columns:
    """Returns windows of the first examples, evenly spaced in those of a part."""
    tokenizer = load_tokenizer(model.folder, model.windows.compat)
    tables: list[Columns] = []
    count = 0
    for example in examples:
        tables.append(feature_rows(features(example, tokenizer, model.windows)))
        count += len(tables[-1]["window_ids"])
        if count >= PART_BATCHES * batch_size:
            break
    if not tables:
        raise Error("there are no windows to calibrate int8 on: leave int8 out")
    step = -(-count // CALIBRATION_WINDOWS)
    return {name: column[::step] for name, column in concatenate(tables).items()}
