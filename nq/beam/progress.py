"""Progress of a running pipeline: each worker writes how many examples it has answered.

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

import apache_beam as beam

from nq.beam.files import create_file, join, match_files, open_file
from nq.formats.input_files import is_uri

WRITE_S = 2.0
POLL_S, POLL_URI_S = 0.5, 10.0
END_S = 2.0

Progress = Callable[[int, int], None]
"""Receives the examples that have just been answered, and how many there are if it is known."""


class CountAnswers(beam.DoFn):  # type: ignore[misc]
    """Passes elements on, and writes their number to a file of its own every ``WRITE_S`` seconds.

    Args:
        folder: path or URI of a folder.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def setup(self) -> None:
        self.path = join(self.folder, uuid.uuid4().hex)
        self.count, self.written_s = 0, time.monotonic()

    def process(self, element: Any) -> Iterator[Any]:
        yield element
        self.count += 1
        if time.monotonic() - self.written_s > WRITE_S:
            self._write()

    def finish_bundle(self) -> None:
        self._write()

    def _write(self) -> None:
        with contextlib.suppress(Exception), create_file(self.path) as file:
            file.write(str(self.count).encode())
        self.written_s = time.monotonic()


def answered(folder: str) -> int:
    """Returns how many examples workers have answered, by their files in a folder."""
    total = 0
    for path in match_files(join(folder, "*")):
        with contextlib.suppress(Exception), open_file(path) as file:  # it is written just now
            total += int(file.read() or b"0")
    return total


@contextlib.contextmanager
def reported(folder: str, progress: Progress, total: int = 0) -> Iterator[None]:
    """Reports progress while the block runs.

    Args:
        folder: of ``CountAnswers``.
        progress: receives it, in another thread.
        total: how many examples there are at most; 0 if it is not known.
    """
    ended, done = threading.Event(), 0

    def report() -> None:
        nonlocal done
        with contextlib.suppress(Exception):  # the file system cannot be reached for a moment
            now = answered(folder)
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
