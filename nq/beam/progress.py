"""Progress of a running pipeline: each worker writes how many examples it has completed.

Beam's runners tell the metrics of a pipeline when it has ended (Flink's job server, the local
runner), or copy the first values that they were asked for (``PortableMetrics``). So that progress
is there while any of them runs, workers write small files into a folder that all of them see. What
a worker does again after a failure counts again: results do not depend on these files.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from nq.beam.files import match_files
from nq.beam.runner import FileSystems, beam
from nq.formats.input_files import is_uri

WRITE_S = 1.0
POLL_S, POLL_URI_S = 0.5, 10.0
END_S = 2.0

Progress = Callable[[int, int], None]
"""Receives the examples that have just been completed, and how many there are, 0 if unknown."""


class CountExamples(beam.DoFn):  # type: ignore[misc]
    """Passes elements on, and writes their number to a file in ``folder`` every ``WRITE_S`` s."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def setup(self) -> None:
        self.path = FileSystems.join(self.folder, uuid.uuid4().hex)
        self.count, self.written_s = 0, time.monotonic()

    def process(self, element: Any) -> Iterator[Any]:
        yield element
        self.count += 1
        if time.monotonic() - self.written_s > WRITE_S:
            self.finish_bundle()

    def finish_bundle(self) -> None:
        with contextlib.suppress(Exception), FileSystems.create(self.path) as file:
            file.write(str(self.count).encode())
        self.written_s = time.monotonic()


def completed(folder: str) -> int:
    """Returns how many examples workers have completed, by their files in a folder."""
    total = 0
    for path in match_files(FileSystems.join(folder, "*")):
        # A file that is being written just now may be empty.
        with contextlib.suppress(Exception), FileSystems.open(path) as file:
            total += int(file.read())
    return total


@contextlib.contextmanager
def reported(folder: str, progress: Progress, total: int = 0) -> Iterator[None]:
    """Reports the progress in a folder of ``CountExamples`` from a thread while the block runs.

    There are at most ``total`` examples; 0 if unknown.
    """
    ended, done = threading.Event(), 0

    def report() -> None:
        nonlocal done
        with contextlib.suppress(Exception):  # the file system cannot be reached for a moment
            now = completed(folder)
            if now > done:
                progress(now - done, max(total, now) if total else 0)
                done = now

    def poll() -> None:
        while not ended.wait(POLL_URI_S if is_uri(folder) else POLL_S):
            report()

    thread = threading.Thread(target=poll, name="nq-beam-progress", daemon=True)
    thread.start()
    try:
        yield
        report()
    finally:
        ended.set()
        thread.join(END_S)
