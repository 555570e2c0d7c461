"""Scores all windows of a job, continuing where an equal job was interrupted.

Memory does not grow with the input: a few examples are in memory at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from nq.errors import Error
from nq.formats import inputs
from nq.inference.scorer import score_examples
from nq.model import checkpoint
from nq.model.runtime import import_tensorflow
from nq.postprocess.decision import RULES, check_rule
from nq.preprocess.prefetch import prefetch
from nq.preprocess.prepare import prepare
from nq.preprocess.request import Request
from nq.preprocess.store import Prepared
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import Columns, DeadLetter, Example, ExampleId, Source, WindowScores
from nq.runs.job import Job
from nq.runs.result import UNFINISHED_SCORES
from nq.runs.score_store import ScoreStore, StoringScorer, exclusive_run
from nq.runs.window_reader import WindowReader

CALIBRATION_WINDOWS = 64

RunProgress = Callable[[int, int], None]
"""Receives the windows that have just been completed, and how many there are so far."""


def no_progress(windows: int, total: int) -> None:
    """Ignores progress."""


class PhaseTimer:
    """Adds up the seconds of each phase of a run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Adds the seconds of the block to a phase."""
        started = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - started
            self.seconds[phase] = self.seconds.get(phase, 0.0) + elapsed


class Chunks:
    """The prepared chunks of a job's files, in order; waits for each when it is needed.

    Args:
        prepared: yields the chunks.
        timer: gets the time of waiting.
    """

    def __init__(self, prepared: Iterator[Prepared], timer: PhaseTimer) -> None:
        self.ready: list[Prepared] = []
        self._prepared, self._timer = prepared, timer

    def __getitem__(self, number: int) -> Prepared:
        while len(self.ready) <= number:
            with self._timer("preprocess_wait_s"):
                self.ready.append(next(self._prepared))
        return self.ready[number]

    def total(self, name: str) -> Any:
        """Returns the sum of a count of ``Prepared`` over the chunks so far."""
        return sum(getattr(chunk, name) for chunk in self.ready)


class Scoring:
    """The windows of a job and their scores; iterating yields each example with its scores.

    The first iteration computes what is not in the store, several examples at a time. Later ones
    read the store.

    Args:
        requests: one for each chunk.
        chunks: the prepared windows.
        scorer: computes scores and stores them.
        timer: gets the time of reading.
        progress: receives completed windows.

    Attributes:
        duplicates: records with the id of an earlier one, which are not answered.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        chunks: Chunks,
        scorer: StoringScorer,
        timer: PhaseTimer,
        progress: RunProgress = no_progress,
    ) -> None:
        self.requests, self.chunks, self.scorer = requests, chunks, scorer
        self.duplicates: list[DeadLetter] = []
        self._timer, self._progress = timer, progress

    def __iter__(self) -> Iterator[tuple[Example, WindowScores]]:
        self.duplicates.clear()
        seen: set[ExampleId] = set()
        for number, request in enumerate(self.requests):
            chunk = self.chunks[number]
            with WindowReader(chunk.shards, request.windows.max_seq_length) as reader:
                windows = self._windows(request, chunk.examples, reader, seen)
                yield from score_examples(self.scorer, windows, self._on_windows)

    def _windows(
        self, request: Request, expected: int, reader: WindowReader, seen: set[ExampleId]
    ) -> Iterator[tuple[Example, Columns]]:
        """Yields each example that is the first of its id with the rows of its windows."""
        examples, count = read_request(request), 0
        while True:
            with self._timer("read_s"):
                source, example = next(examples, (None, None))
                if source is None or example is None:
                    break
                rows = reader.rows((source.file_index, source.line))
            count += 1
            if example.example_id not in seen:
                seen.add(example.example_id)
                yield example, rows
                continue
            reason = f"example_id {example.example_id} occurs twice; the first record is used"
            self.duplicates.append(DeadLetter(source, reason, example.question))
            self._on_windows(len(rows["window_ids"]))
        if count != expected:
            raise Error(
                f"found {count} examples in {', '.join(request.files)}, expected {expected} as "
                "when their windows were prepared: the files have changed; run again"
            )

    def _on_windows(self, windows: int) -> None:
        self._progress(windows, self.chunks.total("windows"))


def read_request(request: Request) -> Iterator[tuple[Source, Example]]:
    """Yields the good records of a request's files; bad ones are dead letters already."""
    left = request.limit
    for index, path in enumerate(request.files, request.first_file):
        for source, record in inputs.read_records(path, index, limit=left):
            if left is not None:
                left -= 1
            if isinstance(record, Example):
                yield source, record


@dataclass(frozen=True)
class Plan:
    """A job with its digests, which are computed once per run.

    Args:
        job: with a chosen profile.
        requests: the preprocessing requests, one for each chunk of the files.
        scores: everything that scores depend on; runs with equal values share scores.
        folder: of the run.
    """

    job: Job
    requests: tuple[Request, ...]
    scores: Mapping[str, Any]
    folder: Path

    @classmethod
    def of(cls, job: Job) -> Plan:
        """Returns the plan of a job; reads the input files and the weights for their digests."""
        requests = job.requests()
        rule, decision = RULES[job.decision.rule], job.decision.to_dict()
        scores = {
            "windows": "+".join(request.key for request in requests),
            "weights": weights_digest(job.model),
            "profile": str(job.profile),
            "batch_size": job.batch_size,
            "positions": [rule.k, rule.text_only],
            **({"decision": decision} if job.optimizations.needs_margin else {}),
        }
        text = orjson.dumps([scores, decision], option=orjson.OPT_SORT_KEYS)
        name = f"{job.profile}-{hashlib.sha256(text).hexdigest()[:10]}"
        return cls(job, requests, scores, job.output or job.root / name)


@contextlib.contextmanager
def open_scoring(
    plan: Plan, timer: PhaseTimer, progress: RunProgress = no_progress
) -> Iterator[Scoring]:
    """Loads the model of a job while its windows are prepared, and opens the store of its scores.

    Until the block ends no other run may write to the folder.

    Args:
        plan: of the job.
        timer: gets the time of each phase.
        progress: receives completed windows.
    """
    job, requests = plan.job, plan.requests
    work = [(request, windows_folder(job, request)) for request in requests]
    with exclusive_run(plan.folder), prefetch(work, job.workers) as prepared:
        chunks = Chunks(prepared, timer)
        scorer = model_loader(job, chunks).scorer(job.optimizations)
        store = ScoreStore.open(plan.folder / UNFINISHED_SCORES, plan.scores)
        yield Scoring(requests, chunks, StoringScorer(scorer, store), timer, progress)


def check_job(job: Job) -> None:
    """Checks what can be checked before TensorFlow is imported.

    Raises:
        ValueError, FileNotFoundError: an input file or the model is of no use.
        Error: a profile and the decision rule do not fit together, or a package that a profile
            needs is not installed.
    """
    for profile in filter(None, (job.optimizations, job.against)):
        check_rule(job.decision.rule, profile.needs_margin)
        profile.require()
    inputs.check_files(job.files)
    checkpoint.check(job.model)


def model_loader(job: Job, chunks: Chunks) -> Any:
    """Returns the ``ModelLoader`` of a job's model; imports TensorFlow."""
    import_tensorflow()
    from nq.inference.load import ModelLoader
    from nq.inference.predictor import PART_BATCHES

    def calibration() -> Columns:
        with WindowReader(chunks[0].shards, job.windows.max_seq_length) as reader:
            return reader.some_rows(PART_BATCHES * job.batch_size, CALIBRATION_WINDOWS)

    tokenizer = load_tokenizer(job.model, job.windows.compat)
    return ModelLoader(job.model, tokenizer, job.windows, job.decision, job.batch_size, calibration)


def prepare_first_chunk(job: Job, timer: PhaseTimer) -> Chunks:
    """Returns the first chunk of a job's windows, prepared now if necessary."""
    first = job.requests()[0]
    return Chunks(iter([prepare(first, windows_folder(job, first), job.workers)]), timer)


def windows_folder(job: Job, request: Request) -> Path:
    """Returns the folder of a request's windows, which runs of equal settings share."""
    return (job.output or job.root) / f"windows-{request.key}"


def weights_digest(model: Path) -> str:
    """Returns the SHA-256 of the weight files of a model folder."""
    return "+".join(inputs.sha256(str(path)) for path in checkpoint.weight_files(model))
