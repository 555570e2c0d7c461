"""The job of ``prepare`` as a Beam pipeline, run on this machine.

ReadQuestions -> progress -> MakeWindows -> WriteToTFRecord
                                        `-> dead letters
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nq.preprocess.beam.runner import beam, execute, parse_options, requested_workers
from nq.preprocess.beam.transforms import MakeWindows, ReadQuestions
from nq.preprocess.local import COUNTERS
from nq.preprocess.request import Request
from nq.preprocess.store import DEAD_LETTERS, encode_dead_letter, shard_prefix
from nq.records import DeadLetter, Example, Source

__all__ = ["parse_options", "requested_workers", "write_windows"]

BAR_INTERVAL_S = 0.2


def write_windows(
    request: Request, part: Path, workers: int, options: Sequence[str]
) -> dict[str, int]:
    """Writes the shards and the dead letters of a request into the folder ``part``.

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
            | "Read" >> ReadQuestions(request.files, request.limit, workers, request.first_file)
            | "Progress" >> beam.ParDo(_Progress(progress))
            | "Windows" >> MakeWindows(request.tokenizer, request.windows, request.training)
        )
        _ = made.windows | "Write" >> beam.io.WriteToTFRecord(
            str(part / shard_prefix(request.first_file)), file_name_suffix=".tfrecord"
        )
        _ = (
            made.dead_letters
            | "CollectDead" >> beam.combiners.ToList()
            | "WriteDead" >> beam.Map(_write_dead_letters, part / DEAD_LETTERS)
        )

    with _bar(progress):
        counters = execute(build, workers, options, part)
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


def _write_dead_letters(letters: list[DeadLetter], path: Path) -> None:
    letters = sorted(letters, key=lambda letter: (letter.source.file_index, letter.source.line))
    path.write_text("".join(f"{encode_dead_letter(x)}\n" for x in letters), encoding="utf-8")


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
        thread.join()
        bar.update(progress.stat().st_size - bar.n)
        bar.close()
