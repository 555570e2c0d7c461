"""Pipelines whose results come in the order of the input; among them that of ``nq preprocess``.

    ReadQuestions -> steps of the job -> count -> encode -> results-*
                               `-> dead letters -> encode -> dead_letters-*

No element is sent to another worker before it is encoded. Workers write through Beam's file sinks,
which rename the file of a bundle when the bundle is complete: what a worker wrote before it died is
not among them, so that nothing is doubled and nothing is lost. Then this process merges the files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nq import __version__
from nq.beam.files import copy_file, match_files
from nq.beam.merge import check_shards, encode, merged
from nq.beam.progress import CountExamples, Progress, reported
from nq.beam.runner import (
    FileSystems,
    Finished,
    beam,
    execute,
    parse_options,
    requested_workers,
)
from nq.beam.transforms import MakeWindows, ReadQuestions
from nq.errors import Error
from nq.preprocess.identity import write_digests
from nq.preprocess.local import COUNTERS
from nq.preprocess.request import Request
from nq.preprocess.shards import ShardWriter
from nq.preprocess.store import DEAD_LETTERS, EXAMPLES, encode_dead_letter
from nq.records import DeadLetter

__all__ = ["parse_options", "requested_workers", "run_in_order", "write_windows"]

RESULTS, DEAD, PROGRESS = "results", "dead_letters", "progress"

Steps = Callable[[Any], tuple[Any, Any]]
"""Adds steps to the questions; returns the results and the dead letters, each with a ``source``."""


def run_in_order(
    questions: ReadQuestions,
    steps: Steps,
    options: Sequence[str],
    *,
    part: Path,
    shared: str,
    progress: Progress,
) -> tuple[Finished, Iterator[Any]]:
    """Runs a pipeline to its end.

    Args:
        questions: reads the input; its ``readers`` are the processes of the local runner, too.
        steps: of the job.
        options: of Beam, with the runner; they win over the number of readers.
        part: an empty folder on this machine.
        shared: path or URI of an empty folder that every worker can write to; may be ``part``.
        progress: receives the completed examples.

    Returns:
        What the pipeline did, and its results and dead letters in the order of the input; ``part``
        has them on disk.

    Raises:
        Error: the job failed or was cancelled; names the step and the cause.
        ValueError: Beam refuses an option.
        DamagedError: a file of a worker is missing.
    """

    def build(pipeline: Any) -> None:
        results, dead_letters = steps(pipeline | "Read" >> questions)
        counted = results | "Count" >> beam.ParDo(CountExamples(folder))
        for label, name, elements in (
            ("", RESULTS, counted),
            ("DeadLetters", DEAD, dead_letters),
        ):
            encoded = elements | f"Encode{label}" >> beam.ParDo(_Encode(__version__))
            sink = beam.io.WriteToTFRecord(FileSystems.join(shared, name))
            _ = encoded | f"Write{label}" >> sink

    folder = FileSystems.join(shared, PROGRESS)
    with reported(folder, progress, questions.limit or 0):
        finished = execute(build, questions.readers, options, part)
    paths = []
    for name in (RESULTS, DEAD):
        files = match_files(FileSystems.join(shared, f"{name}-*"))
        check_shards([file.rpartition("/")[2] for file in files])
        for file in files:
            paths.append(part / file.rpartition("/")[2])
            if not paths[-1].exists():
                copy_file(file, str(paths[-1]))
    return finished, merged(paths)


class _Encode(beam.DoFn):  # type: ignore[misc]
    """Encodes elements; fails in a worker that has another version of nq."""

    def __init__(self, version: str) -> None:
        self.version = version

    def setup(self) -> None:
        if self.version != __version__:
            raise Error(
                f"a worker has nq {__version__}, this machine has {self.version}: install the same "
                "version on both"
            )

    def process(self, element: Any) -> Iterator[bytes]:
        yield encode(element)


def write_windows(
    request: Request, part: Path, workers: int, options: Sequence[str]
) -> dict[str, int]:
    """Writes shard, digests and dead letters of a request into the folder ``part``.

    The files are the same for any number of workers.

    Args:
        request: what to make.
        part: an empty folder on this machine.
        workers: processes.
        options: Beam's options; they win over ``workers``.

    Returns:
        The counts of ``nq.preprocess.store.Prepared``.

    Raises:
        Error: a step failed or a worker died; names the step and the cause.
        ValueError: Beam refuses an option.
    """
    from tqdm import tqdm

    questions = ReadQuestions(
        request.files, request.limit, workers, first_file=request.first_file, pages=request.pages
    )
    windows = MakeWindows(request.tokenizer, request.windows, request.training, "groups")

    def steps(records: Any) -> tuple[Any, Any]:
        made = records | "Windows" >> windows
        return made.windows, made.dead_letters

    digests = []
    with (
        tempfile.TemporaryDirectory(dir=part) as folder,
        (part / DEAD_LETTERS).open("w", encoding="utf-8") as dead_letters,
        ShardWriter(part, request.first_file) as writer,
    ):
        with tqdm(desc="preprocess", unit=" examples", disable=None) as bar:
            finished, elements = run_in_order(
                questions,
                steps,
                options,
                part=Path(folder),
                shared=folder,
                progress=lambda new, _: bar.update(new),
            )
        for one in elements:
            if isinstance(one, DeadLetter):
                dead_letters.write(f"{encode_dead_letter(one)}\n")
            else:
                writer.write(one.records)
                digests.append(((one.source.file_index, one.source.line), one.digest))
    write_digests(part / EXAMPLES, digests)
    return {name: finished.counters.get(name, 0) for name in COUNTERS}
