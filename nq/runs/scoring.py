"""Scores all windows of a job, continuing where an equal job was interrupted.

Memory does not grow with the input: a few examples are in memory at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from nq import storage
from nq.beam.prefetch import Work, prefetch
from nq.beam.prepare import check_output, prepare, prepare_again
from nq.errors import DamagedError, Error
from nq.formats import decoding, inputs
from nq.inference import cores
from nq.inference.instances import InstanceDiedError, InstancePool
from nq.inference.load import ScorerSpec, load_scorer
from nq.inference.profile import Profile
from nq.inference.scorer import PART_BATCHES, Scorer, concatenate, feature_rows, score_examples
from nq.model.folder import weights_digest
from nq.model.runtime import import_tensorflow
from nq.model.spec import ModelSpec
from nq.postprocess.decision import RULES, check_cascade_rule, check_rule
from nq.preprocess.features import features
from nq.preprocess.identity import example_digest
from nq.preprocess.request import Request
from nq.preprocess.store import Prepared
from nq.preprocess.tokenizers.load import load_tokenizer, tokenizer_digest
from nq.records import (
    Columns,
    DeadLetter,
    Example,
    ExampleId,
    ExampleKey,
    IntArray,
    Scores,
    Source,
)
from nq.runs.job import Job
from nq.runs.phases import READ, WAIT, PhaseTimer
from nq.runs.pipeline import score_in_instances
from nq.runs.result import UNFINISHED_SCORES
from nq.runs.score_store import DIGESTS, ScoreStore, StoringScorer
from nq.runs.window_reader import WindowReader

CALIBRATION_EXAMPLES, CALIBRATION_WINDOWS = 8, 64

RunProgress = Callable[[int, int], None]
"""Receives the windows that have just been completed, and how many there are so far."""


def no_progress(windows: int, total: int) -> None:
    """Ignores progress."""


class Chunks:
    """The prepared chunks of a job's files, in order; waits for each when it is needed.

    Args:
        prepared: yields the chunks.
        work: the request and the folder of each.
        workers: processes that prepare a chunk again if it is damaged.
        timer: gets the time of waiting.
    """

    def __init__(
        self, prepared: Iterator[Prepared], work: Work, workers: int | None, timer: PhaseTimer
    ) -> None:
        self.ready: list[Prepared] = []
        self._prepared, self._work, self._workers = prepared, work, workers
        self._timer = timer

    def __getitem__(self, number: int) -> Prepared:
        while len(self.ready) <= number:
            with self._timer(WAIT):
                self.ready.append(next(self._prepared))
        return self.ready[number]

    def open_windows(self, number: int) -> WindowReader:
        """Returns the windows of a chunk, which are prepared again if they are damaged.

        Raises:
            Error: they cannot be prepared, or are damaged again.
        """
        length = self._work[number][0].windows.max_seq_length
        try:
            return WindowReader(self[number].shards, length)
        except DamagedError as damage:
            request, folder = self._work[number]
            with self._timer(WAIT):
                self.ready[number] = prepare_again(request, folder, damage, self._workers)
        return WindowReader(self[number].shards, length)

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
        progress: receives completed windows, in the first iteration.

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
        self._is_complete = False

    def __iter__(self) -> Iterator[tuple[Example, Scores]]:
        self.duplicates.clear()
        seen: set[ExampleId] = set()
        for number, request in enumerate(self.requests):
            with self.chunks.open_windows(number) as reader:
                windows = self._windows(request, self.chunks[number], reader, seen)
                yield from self._scored(windows)
            request.check_unchanged()
        self._is_complete = True

    def _scored(
        self, windows: Iterator[tuple[Example, Columns]]
    ) -> Iterator[tuple[Example, Scores]]:
        if isinstance(pool := self.scorer.inner, InstancePool):
            return score_in_instances(self.scorer, pool, windows, self._on_windows)
        return score_examples(self.scorer, windows, self._on_windows)

    def _windows(
        self, request: Request, chunk: Prepared, reader: WindowReader, seen: set[ExampleId]
    ) -> Iterator[tuple[Example, Columns]]:
        """Yields each example that is the first of its id with the rows of its windows.

        The rows have the example's digest in the column ``DIGESTS``.
        """
        request.check_unchanged()
        count, prepared = 0, chunk.example_digests()
        # Pages with too many windows are dead letters that only the preprocessing has found.
        examples = (r for r in read_request(request) if (r[0].file_index, r[0].line) in reader)
        while True:
            with self._timer(READ):
                source, example = next(examples, (None, None))
                if source is None or example is None:
                    break
                rows = reader.rows((source.file_index, source.line))
                rows[DIGESTS] = _check_digest(example, source, prepared, len(rows["window_ids"]))
            count += 1
            if example.example_id not in seen:
                seen.add(example.example_id)
                yield example, rows
                continue
            self.duplicates.append(duplicate(source, example.example_id, example.question))
            self._on_windows(len(rows["window_ids"]))
        if count != chunk.examples:
            raise Error(
                f"found {count} examples in {', '.join(request.files)}, expected {chunk.examples} "
                "as when their windows were prepared: the files have changed; run again"
            )

    def _on_windows(self, windows: int) -> None:
        if not self._is_complete:
            self._progress(windows, self.chunks.total("windows"))


def duplicate(source: Source, example_id: ExampleId, question: str) -> DeadLetter:
    """Returns the dead letter of a record with the id of an earlier one.

    Args:
        source: of the record.
        example_id: of both.
        question: of the record.
    """
    reason = f"example_id {example_id} occurs twice; the first record is used"
    return DeadLetter(source, reason, question[: decoding.EXCERPT_CHARS])


def _check_digest(
    example: Example, source: Source, prepared: Mapping[ExampleKey, int] | None, windows: int
) -> IntArray:
    """Returns the digest of an example for each of its windows.

    Args:
        example: as it is read now.
        source: where.
        prepared: the digests of the examples that the windows were prepared from, if known.
        windows: of the example.

    Raises:
        Error: the example is not the one that the windows were prepared from.
    """
    digest = example_digest(example)
    if prepared is not None and prepared.get((source.file_index, source.line)) != digest:
        raise Error(
            f"{source.path}, line {source.line}, has changed since its windows were prepared: "
            "run the command again when the file is complete"
        )
    return np.full(windows, digest, np.int64)


def read_request(request: Request) -> Iterator[tuple[Source, Example]]:
    """Yields the good records of a request's files; bad ones are dead letters already."""
    left = request.limit
    for index, path in enumerate(request.files, request.first_file):
        for source, record in decoding.read_records(path, index, limit=left, pages=request.pages):
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
    def of(cls, job: Job, requests: tuple[Request, ...] | None = None) -> Plan:
        """Returns the plan of a job; reads the input files and the weights for their digests.

        Args:
            job: with a chosen profile.
            requests: by default those of the job.
        """
        requests = requests or job.requests()
        rule, decision = RULES[job.model.decision.rule], job.model.decision.to_dict()
        scores = {
            "windows": "+".join(request.key for request in requests),
            "weights": weights_digest(job.model.folder),
            "profile": str(job.profile),
            "batch_size": job.batch_size,
            "positions": [rule.k, rule.text_only],
            **_second_identity(job.model),
            **({} if job.threads is None else {"threads": job.threads}),
            **({} if job.runner is None else {"runner": job.runner}),
            **({"decision": decision} if job.optimizations.needs_margin else {}),
        }
        text = orjson.dumps([scores, decision], option=orjson.OPT_SORT_KEYS)
        name = f"{job.profile}-{hashlib.sha256(text).hexdigest()[:10]}"
        return cls(job, requests, scores, job.output or job.root / name)

    @property
    def description(self) -> dict[str, Any]:
        """The job with the digests of what it reads, as ``job.json`` has it."""
        described = [request.description for request in self.requests]
        files = [file for description in described for file in description["inputs"]]
        return {"job": self.job.to_dict(), "request": {**described[0], "inputs": files}}


def _second_identity(model: ModelSpec) -> dict[str, Any]:
    """Returns everything of a second model that scores depend on, as JSON values."""
    second, cascade = model.second, model.cascade
    if second is None or cascade is None:
        return {}
    tokenizer = load_tokenizer(second.folder, second.windows.compat)
    identity = {
        "weights": weights_digest(second.folder),
        "tokenizer": tokenizer_digest(tokenizer),
        "windows": second.windows.to_dict(),
        "read_blocks": cascade.read_blocks,
        "ranker": cascade.ranker.to_dict(),
    }
    return {"second_model": identity}


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

    Raises:
        Error: the folder holds files of others or an input, or another run writes to it.
        OSError: the folder cannot be created or written.
    """
    job, requests = plan.job, plan.requests
    work = [(request, windows_folder(job, request)) for request in requests]
    for request, folder in work:
        check_output(request, folder)
    with (
        storage.hold(plan.folder, storage.RUN, job.sources),
        prefetch(work, job.workers) as prepared,
    ):
        chunks = Chunks(prepared, work, job.workers, timer)
        with _open_scorer(job, chunks) as scorer:
            store = ScoreStore.open(plan.folder / UNFINISHED_SCORES, plan.scores)
            yield Scoring(requests, chunks, StoringScorer(scorer, store, timer), timer, progress)


@contextlib.contextmanager
def _open_scorer(job: Job, chunks: Chunks) -> Iterator[Scorer]:
    """Loads the model of a job, in this process or in its instances, which end with the block."""
    if job.instances is None:
        if job.threads is not None:
            cores.warn_if_too_few(1, job.threads)
        import_tensorflow(job.threads)
        yield load_scorer(scorer_spec(job, chunks))
        return
    try:
        with InstancePool(scorer_spec(job, chunks), job.instances, job.threads or 1) as pool:
            yield pool
    except InstanceDiedError as error:
        raise InstanceDiedError(
            f"{error}: run the same command again to resume, with fewer instances if the memory "
            "was full"
        ) from error


def check_job(job: Job) -> None:
    """Checks what can be checked before TensorFlow is imported.

    Raises:
        ValueError, FileNotFoundError: an input file or the model is of no use.
        Error: a profile and the decision rule do not fit together, or a package that a profile
            needs is not installed.
    """
    for profile in check_rules(job):
        profile.require()
    check_models(job)


def check_rules(job: Job) -> list[Profile]:
    """Checks that the decision rule has what the profiles of a job need; returns the profiles.

    Raises:
        Error: a profile and the decision rule do not fit together.
    """
    others = [job.against] if isinstance(job.against, Profile) else []
    profiles = [job.optimizations, *others]
    for profile in profiles:
        check_rule(job.model.decision.rule, profile.needs_margin)
    return profiles


def check_models(job: Job) -> None:
    """Checks the files and models of a job, whose profile need not be chosen yet.

    Raises:
        ValueError, FileNotFoundError: an input file or a model is of no use.
        Error: the decision rule ranks no blocks for a second model.
    """
    inputs.check_files(job.files)
    inputs.check_records(job.files, job.limit, job.pages)
    check_model_folders(job)


def check_model_folders(job: Job) -> None:
    """Checks the models of a job.

    Raises:
        ValueError, FileNotFoundError: a model is of no use.
        Error: the decision rule ranks no blocks for a second model.
    """
    if job.model.second is not None:
        check_cascade_rule(job.model.decision.rule)
    job.model.check()


def scorer_spec(job: Job, chunks: Chunks) -> ScorerSpec:
    """Returns the description of a job's scorer, with the windows on which it is calibrated."""
    model, calibration = job.model, dict[Path, Columns]()
    if job.optimizations.changes.int8:
        with chunks.open_windows(0) as reader:
            n_windows = PART_BATCHES * job.batch_size
            calibration[model.folder] = reader.some_rows(n_windows, CALIBRATION_WINDOWS)
        calibration |= second_calibration(job)
    return ScorerSpec(model, job.optimizations, job.batch_size, job.threads, calibration)


def second_calibration(job: Job) -> dict[Path, Columns]:
    """Returns windows of a job's first examples for its second model; empty without one."""
    model = job.model.second
    if model is None:
        return {}
    tokenizer = load_tokenizer(model.folder, model.windows.compat)
    files = (decoding.read_records(path, pages=job.pages) for path in job.files)
    records = (record for file in files for _, record in file)
    examples = islice((r for r in records if isinstance(r, Example)), CALIBRATION_EXAMPLES)
    rows = concatenate([feature_rows(features(e, tokenizer, model.windows)) for e in examples])
    step = -(-len(rows["window_ids"]) // CALIBRATION_WINDOWS)
    return {model.folder: {name: column[::step] for name, column in rows.items()}}


def prepare_first_chunk(job: Job, timer: PhaseTimer) -> Chunks:
    """Returns the first chunk of a job's windows, prepared now if necessary."""
    first = job.requests()[0]
    folder = windows_folder(job, first)
    prepared = iter([prepare(first, folder, job.workers)])
    return Chunks(prepared, [(first, folder)], job.workers, timer)


def windows_folder(job: Job, request: Request) -> Path:
    """Returns the folder of a request's windows, which runs of equal settings share."""
    return (job.output or job.root) / f"windows-{request.key}"
