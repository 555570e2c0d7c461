"""The Beam pipeline, a thin wrap around plain functions.

    shares of files -> reshuffle -> read -> features -> encode -> WriteToTFRecord
                                     `-> dead letters

What is reshuffled are shares of files, not their text, so that memory does not grow with
the input: a worker reads every n-th record of a file. The windows of an example are written
one after the other into one shard; the prediction relies on it and checks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nq.errors import Error
from nq.formats import inputs
from nq.formats.tfrecord import encode_records
from nq.preprocess.beam.runner import beam
from nq.preprocess.features import features, training_features
from nq.preprocess.store import Request, encode_dead_letter
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import DeadLetter, Example, Features, Source

EXAMPLES, WINDOWS = "examples", "windows"
FILES_PER_WORKER = 4
_DEAD = "dead"
_SORT_KEY_CHARS = 23  # file and line before each dead letter, until they are merged

Share = tuple[int, int, int]


def shares(n_files: int, workers: int) -> list[Share]:
    """(file, i, n) for each piece of work: every n-th record of a file from the i-th on.

    >>> shares(1, 2), shares(8, 2)[:3]
    ([(0, 0, 2), (0, 1, 2)], [(0, 0, 1), (1, 0, 1), (2, 0, 1)])
    """
    n = 1 if n_files >= FILES_PER_WORKER * workers else workers
    return [(file, i, n) for file in range(n_files) for i in range(n)]


def add(pipeline: Any, request: Request, work: Sequence[Share], part: Path, progress: Path) -> None:
    """Adds the steps to an empty pipeline.

    Args:
        pipeline: what to add to.
        request: what to make.
        work: the shares of the input files.
        part: the folder for shards and dead letters.
        progress: a file that gets one byte an example.
    """
    made = (
        pipeline
        | "Shares" >> beam.Create(work)
        | "Reshuffle" >> beam.Reshuffle()
        | "Read" >> beam.FlatMap(_read, request, _limits(request))
        | "Features" >> beam.ParDo(_ToWindows(request, progress)).with_outputs(_DEAD, main="rows")
    )
    name = f"windows-{request.first_file}" if request.first_file else "windows"
    _ = made.rows | "Write" >> beam.io.WriteToTFRecord(
        str(part / name), file_name_suffix=".tfrecord"
    )
    _ = (
        made[_DEAD]
        | "EncodeDead" >> beam.Map(_sortable_dead_letter)
        | "WriteDead" >> beam.io.WriteToText(str(part / "dead"), file_name_suffix=".jsonl")
    )


def _limits(request: Request) -> list[int | None]:
    """How many records of each file belong to the first ``request.limit`` of all."""
    if request.limit is None:
        return [None] * len(request.files)
    left, limits = request.limit, list[int | None]()
    for path in request.files:
        count = inputs.count_records(path, left) if left else 0
        limits.append(count)
        left -= count
    return limits


def _read(
    share: Share, request: Request, limits: Sequence[int | None]
) -> Iterator[tuple[Source, Example | DeadLetter]]:
    file, i, n = share
    return inputs.read_records(request.files[file], request.first_file + file, (i, n), limits[file])


class _ToWindows(beam.DoFn):  # type: ignore[misc]
    """(source, example) -> serialized windows; bad records go to the ``dead`` output."""

    def __init__(self, request: Request, progress: Path) -> None:
        self.request, self.progress = request, progress
        self.examples = beam.metrics.Metrics.counter("nq", EXAMPLES)
        self.windows = beam.metrics.Metrics.counter("nq", WINDOWS)

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
        made = self._features(source, item)
        self.examples.inc()
        self.windows.inc(len(made))
        self.ticks.write(b".")
        yield from encode_records(made, source, self.request.windows.compat)

    def _features(self, source: Source, example: Example) -> Features:
        config, training = self.request.windows, self.request.training
        try:
            if training:
                return training_features(example, self.tokenizer, config, *training)
            return features(example, self.tokenizer, config)
        except Exception as error:
            where = f"{source.path}, line {source.line} (example {example.example_id})"
            raise Error(f"{where}: {type(error).__name__}: {error}") from error


def _sortable_dead_letter(letter: DeadLetter) -> str:
    return f"{letter.source.file_index:09d} {letter.source.line:012d} {encode_dead_letter(letter)}"


def merge_dead_letters(part: Path, merged: Path) -> int:
    """Gathers the workers' dead letters into one file, sorted by input file and line.

    Returns:
        How many there are.
    """
    lines: list[bytes] = []
    for path in part.glob("dead-*.jsonl"):
        with path.open("rb") as file:
            lines += file
    with merged.open("wb") as file:
        file.writelines(line[_SORT_KEY_CHARS:] for line in sorted(lines))
    return len(lines)
