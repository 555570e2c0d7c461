"""The Beam job: input files -> windows as TFRecords, with a manifest beside them.

    shares of files -> reshuffle -> read -> features -> encode -> WriteToTFRecord
                                     `-> dead letters

What is reshuffled are shares of files, not their text, so that memory does not grow with
the input: a worker reads every n-th line of a file. The windows of an example are written
one after the other into one shard; the prediction relies on it and checks it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import orjson
from apache_beam.io.tfrecordio import WriteToTFRecord
from apache_beam.options.pipeline_options import PipelineOptions
from tqdm import tqdm

from nq import __version__
from nq.config import WindowConfig
from nq.formats import inputs
from nq.formats.tfrecord import encode_records
from nq.preprocess.features import features, training_features
from nq.preprocess.tokenizer import Tokenizer
from nq.preprocess.vocabulary import load_tokenizer, tokenizer_digest
from nq.records import DeadLetter, Example, Source

log = logging.getLogger(__name__)

COMPLETED = "COMPLETED"
MANIFEST = "manifest.json"
DEAD_LETTERS = "dead_letters.jsonl"
SHARD_PATTERN = "windows-*.tfrecord"
LARGE_INPUT_BYTES = 64 << 20
MAX_INT64 = 2**63 - 1
_DEAD = "dead"


@dataclass(frozen=True)
class Request:
    """What a preprocessing run is asked for; equal requests give equal windows.

    Args:
        files: input files in order.
        tokenizer: folder or file of the tokenizer.
        windows: how pages become windows.
        limit: read at most so many records in all.
        training: ``(negatives, seed)`` for training features, ``None`` for inference.
    """

    files: tuple[str, ...]
    tokenizer: str
    windows: WindowConfig
    limit: int | None = None
    training: tuple[float, int] | None = None

    def describe(self) -> dict[str, Any]:
        """The request as the manifest keeps it, with digests in place of paths."""
        tokenizer = load_tokenizer(self.tokenizer, self.windows.compat)
        return {
            "version": __version__,
            "inputs": [{"name": Path(f).name, "sha256": inputs.digest(f)} for f in self.files],
            "tokenizer": tokenizer_digest(tokenizer),
            "windows": self.windows.to_dict(),
            "limit": self.limit,
            "training": list(self.training) if self.training else None,
        }

    def key(self) -> str:
        """A short name for the request's content."""
        text = json.dumps(self.describe(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Prepared:
    """A finished folder of windows.

    Args:
        folder: where it lies.
        shards: its TFRecord files, sorted.
        examples, windows, dead_letters: counts.
        reused: whether it was there already.
        seconds: wall time of the job that made it.
    """

    folder: Path
    shards: tuple[Path, ...]
    examples: int
    windows: int
    dead_letters: int
    reused: bool
    seconds: float

    @property
    def dead_letter_file(self) -> Path:
        """The bad records, one JSON object a line."""
        return self.folder / DEAD_LETTERS


def prepare(
    request: Request,
    output: str | Path,
    workers: int | None = None,
    beam_options: Sequence[str] = (),
) -> Prepared:
    """Runs the job, or reuses ``output`` if an equal request was completed there.

    Args:
        request: what to make.
        output: the folder for shards, manifest, dead letters and mark.
        workers: processes; by default one for small input, all cores for large.
        beam_options: anything Beam understands, such as ``--runner=DirectRunner``.

    Raises:
        OSError: a file cannot be read or written.
    """
    folder = Path(output)
    described = request.describe()
    found = _completed(folder, described)
    if found:
        return found
    _clear(folder)
    started = time.perf_counter()
    counts = _run(request, folder, workers or default_workers(request.files), beam_options)
    counts["seconds"] = time.perf_counter() - started
    manifest = {"request": described, "counts": counts}
    _write_text(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n")
    _write_text(folder / COMPLETED, "")
    return _prepared(folder, counts, reused=False)


def default_workers(files: Sequence[str]) -> int:
    """One process for small input; starting more costs seconds."""
    size = sum(os.path.getsize(f) for f in files)
    return 1 if size < LARGE_INPUT_BYTES else len(os.sched_getaffinity(0))


def _completed(folder: Path, described: dict[str, Any]) -> Prepared | None:
    if not (folder / COMPLETED).exists():
        return None
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if manifest["request"] != described:
        return None
    return _prepared(folder, manifest["counts"], reused=True)


def _prepared(folder: Path, counts: dict[str, Any], reused: bool) -> Prepared:
    shards = tuple(sorted(folder.glob(SHARD_PATTERN)))
    return Prepared(folder, shards, **counts, reused=reused)


def _clear(folder: Path) -> None:
    """Makes the folder and takes what an unfinished or other job left in it, nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / COMPLETED).unlink(missing_ok=True)
    for pattern in (SHARD_PATTERN, MANIFEST, "dead-*.jsonl", DEAD_LETTERS, ".progress"):
        for path in folder.glob(pattern):
            path.unlink()
    for path in folder.glob("beam-temp-*"):
        shutil.rmtree(path, ignore_errors=True)


def _write_text(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _run(
    request: Request, folder: Path, workers: int, beam_options: Sequence[str]
) -> dict[str, Any]:
    shares = [
        (path, index, (worker, workers))
        for index, path in enumerate(request.files)
        for worker in range(workers)
    ]
    progress = folder / ".progress"
    progress.touch()
    with _bar(progress), _quiet_beam():
        pipeline = beam.Pipeline(options=_options(workers, beam_options))
        made = (
            pipeline
            | "Shares" >> beam.Create(shares)
            | "Reshuffle" >> beam.Reshuffle()
            | "Read" >> beam.FlatMap(_read, limits=_limits(request))
            | "Features" >> beam.ParDo(_Windows(request, str(progress))).with_outputs(_DEAD, main="rows")
        )
        _ = made.rows | "Write" >> WriteToTFRecord(
            str(folder / "windows"), file_name_suffix=".tfrecord"
        )
        _ = (
            made[_DEAD]
            | "EncodeDead" >> beam.Map(encode_dead_letter)
            | "WriteDead" >> beam.io.WriteToText(str(folder / "dead"), file_name_suffix=".jsonl")
        )
        result = pipeline.run()
        result.wait_until_finish()
    progress.unlink()
    dead = _merge_dead_letters(folder)
    counters = {
        c.key.metric.name: c.committed or 0 for c in result.metrics().query()["counters"]
    }
    return {
        "examples": counters.get("examples", 0),
        "windows": counters.get("windows", 0),
        "dead_letters": dead,
    }


def _limits(request: Request) -> list[int | None]:
    """How many records of each file belong to the first ``request.limit`` of all."""
    if request.limit is None:
        return [None] * len(request.files)
    left, limits = request.limit, []
    for path in request.files:
        count = sum(1 for _ in inputs.read_lines(path, limit=left)) if left else 0
        limits.append(count)
        left -= count
    return limits


def _read(
    share: tuple[str, int, tuple[int, int]], limits: list[int | None]
) -> Iterator[tuple[Source, Example | DeadLetter]]:
    path, index, part = share
    return inputs.read_examples(path, index, part, limits[index])


class _Windows(beam.DoFn):  # type: ignore[misc]
    """(source, example) -> serialized windows; bad records go to the ``dead`` output."""

    def __init__(self, request: Request, progress: str) -> None:
        self.request, self.progress = request, progress
        self.examples = beam.metrics.Metrics.counter("nq", "examples")
        self.windows = beam.metrics.Metrics.counter("nq", "windows")

    def setup(self) -> None:
        self.tokenizer: Tokenizer = load_tokenizer(
            self.request.tokenizer, self.request.windows.compat
        )
        self.ticks = open(self.progress, "ab", buffering=0)  # noqa: SIM115

    def teardown(self) -> None:
        self.ticks.close()

    def process(self, element: tuple[Source, Example | DeadLetter]) -> Iterator[Any]:
        source, item = element
        if isinstance(item, DeadLetter):
            yield beam.pvalue.TaggedOutput(_DEAD, item)
            return
        config = self.request.windows
        if self.request.training:
            negatives, seed = self.request.training
            made = training_features(item, self.tokenizer, config, negatives, seed)
        else:
            made = features(item, self.tokenizer, config)
        self.examples.inc()
        self.windows.inc(len(made))
        self.ticks.write(b".")
        yield from encode_records(made, source, config.compat)


def encode_dead_letter(letter: DeadLetter) -> str:
    """One line of JSON: file, line, reason, and the beginning of the record."""
    source = letter.source
    return orjson.dumps(
        {
            "file": source.path,
            "line": source.line,
            "reason": letter.reason,
            "record": letter.record,
        }
    ).decode()


def _merge_dead_letters(folder: Path) -> int:
    """Gathers the workers' dead letters into one sorted file; how many there are."""
    parts = sorted(folder.glob("dead-*.jsonl"))
    lines = [line for part in parts for line in part.read_text("utf-8").splitlines()]
    lines.sort(key=lambda line: (orjson.loads(line)["file"], orjson.loads(line)["line"]))
    _write_text(folder / DEAD_LETTERS, "".join(line + "\n" for line in lines))
    for part in parts:
        part.unlink()
    return len(lines)


def _options(workers: int, beam_options: Sequence[str]) -> PipelineOptions:
    defaults = ["--runner=FnApiRunner"]
    if workers > 1:
        defaults += ["--direct_running_mode=multi_processing", f"--direct_num_workers={workers}"]
    return PipelineOptions([*defaults, *beam_options])


@contextlib.contextmanager
def _quiet_beam() -> Iterator[None]:
    """Beam's own chatter below warnings stays out of the log."""
    logger = logging.getLogger("apache_beam")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextlib.contextmanager
def _bar(progress: Path) -> Iterator[None]:
    """A progress bar over a file that the workers append one byte an example to."""
    done = threading.Event()
    bar = tqdm(desc="preprocess", unit=" examples", disable=None)

    def poll() -> None:
        while not done.wait(0.2):
            bar.update(progress.stat().st_size - bar.n)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        if progress.exists():
            bar.update(progress.stat().st_size - bar.n)
        bar.close()


def describe_request(request: Request) -> dict[str, Any]:
    """The request as plain values, for logs."""
    return dataclasses.asdict(request)
