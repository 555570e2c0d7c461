"""The job of ``prepare`` as a Beam pipeline, run on this machine.

ReadQuestions -> progress -> MakeWindows -> groups -> windows in the order of the input
                                        `-> dead letters
"""

from __future__ import annotations

import contextlib
import heapq
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from nq.beam.groups import write_in_order
from nq.beam.runner import beam, execute, parse_options, requested_workers
from nq.beam.transforms import MakeWindows, ReadQuestions
from nq.preprocess.identity import write_digests
from nq.preprocess.local import COUNTERS
from nq.preprocess.request import Request
from nq.preprocess.shards import ShardWriter
from nq.preprocess.store import DEAD_LETTERS, EXAMPLES, encode_dead_letter
from nq.records import DeadLetter, Example, Source

__all__ = ["parse_options", "requested_workers", "write_windows"]

BAR_INTERVAL_S = 0.2
GROUPS = "groups"
SORTED_SUFFIX = ".sorted"
MERGED_FILES = 256


def write_windows(
    request: Request, part: Path, workers: int, options: Sequence[str]
) -> dict[str, int]:
    """Writes shard, digests and dead letters of a request into the folder ``part``.

    The files are the same for any number of workers.

    Args:
        request: what to make.
        part: an empty folder that every worker can write to.
        workers: processes.
        options: Beam's options; they win over ``workers``.

    Returns:
        The counts of ``nq.preprocess.store.Prepared``.

    Raises:
        Error: a step failed or a worker died; names the step and the cause.
        ValueError: Beam refuses an option.
    """
    progress = part / "progress"
    progress.touch()

    def build(pipeline: Any) -> None:
        made = (
            pipeline
            | "Read"
            >> ReadQuestions(
                request.files, request.limit, workers, request.first_file, request.pages
            )
            | "Progress" >> beam.ParDo(_Progress(progress))
            | "Windows"
            >> MakeWindows(request.tokenizer, request.windows, request.training, "groups")
        )
        _ = made.windows | "Write" >> beam.io.WriteToTFRecord(str(part / GROUPS))
        _ = made.dead_letters | "WriteDead" >> beam.ParDo(_WriteDeadLetters(part))

    with _bar(progress):
        counters = execute(build, workers, options, part).counters
    _merge_dead_letters(part)
    groups = sorted(part.glob(f"{GROUPS}-*"))
    with ShardWriter(part, request.first_file) as writer:
        digests = write_in_order(groups, writer)
    write_digests(part / EXAMPLES, digests)
    return {name: counters.get(name, 0) for name in COUNTERS}


class _Progress(beam.DoFn):  # type: ignore[misc]
    """Passes elements on; appends one byte for each example to a file that all workers share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def setup(self) -> None:
        self.file = open(self.path, "ab", buffering=0)  # noqa: SIM115

    def teardown(self) -> None:
        self.file.close()

    def process(self, element: tuple[Source, Example | DeadLetter]) -> Iterator[Any]:
        yield element
        if isinstance(element[1], Example):
            self.file.write(b".")


class _WriteDeadLetters(beam.DoFn):  # type: ignore[misc]
    """Writes dead letters into sorted files: a new one starts where the order is broken.

    So memory does not grow with their number. A line begins with file number and line.
    """

    def __init__(self, part: Path) -> None:
        self.part = part

    def start_bundle(self) -> None:
        self.file: IO[bytes] | None = None
        self.last = 0, 0

    def process(self, letter: DeadLetter) -> None:
        key = letter.source.file_index, letter.source.line
        if self.file is None or key < self.last:
            self.finish_bundle()
            self.file = (self.part / f"{uuid.uuid4().hex}{SORTED_SUFFIX}").open("wb")
        self.last = key
        self.file.write(f"{key[0]} {key[1]} {encode_dead_letter(letter)}\n".encode())

    def finish_bundle(self) -> None:
        if self.file is not None:
            self.file.close()


def _merge_dead_letters(part: Path) -> None:
    """Merges the sorted files of all workers."""
    paths = sorted(part.glob(f"*{SORTED_SUFFIX}"))
    while len(paths) > MERGED_FILES:
        merged = part / f"merged-{len(paths)}{SORTED_SUFFIX}"
        with merged.open("wb") as target:
            target.writelines(_merged(paths[:MERGED_FILES]))
        paths = [*paths[MERGED_FILES:], merged]
    with (part / DEAD_LETTERS).open("wb") as target:
        target.writelines(line.split(b" ", 2)[2] for line in _merged(paths))


def _merged(paths: Sequence[Path]) -> Iterator[bytes]:
    """Yields the lines of sorted files in the order of their keys, and removes the files."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]
        yield from heapq.merge(*files, key=lambda line: tuple(map(int, line.split(b" ", 2)[:2])))
    for path in paths:
        path.unlink()


@contextlib.contextmanager
def _bar(progress: Path) -> Iterator[None]:
    """Shows a progress bar over the size of a file."""
    from tqdm import tqdm

    done = threading.Event()
    bar = tqdm(desc="preprocess", unit=" examples", disable=None)

    def poll() -> None:
        while not done.wait(BAR_INTERVAL_S):
            bar.update(progress.stat().st_size - bar.n)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(1.0)
        bar.update(progress.stat().st_size - bar.n)
        bar.close()
