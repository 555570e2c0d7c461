"""Preprocessing in a process of its own, while this one loads a model and predicts.

The process prepares one folder after the other. It reports nothing: if it fails, a folder is
missing, and ``prefetch`` prepares that folder itself and raises the error. The process ends with
the process that started it, however that ends, and is interrupted by that process alone. It has
``CLEANUP_S`` to clean up then; what it leaves, the next job removes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from nq.beam.prepare import Prepared, Request, find_whole, prepare
from nq.child import python_path
from nq.errors import DamagedError
from nq.preprocess.store import find_completed

CLEANUP_S, END_TIMEOUT_S = 2.0, 3.0
POLL_S = 0.02

Work = Sequence[tuple[Request, Path]]
"""What to prepare, and the folder for each."""


@contextlib.contextmanager
def prefetch(work: Work, workers: int | None = None) -> Iterator[Iterator[Prepared]]:
    """Starts to prepare windows in another process, in the order in which they are needed.

    Yields:
        An iterator that waits for each folder and raises as ``prepare`` does. In each
        ``Prepared``, ``seconds`` is the work, not the wait, and ``reused`` is false if the other
        process made it.
    """
    reused = [find_whole(request, folder) is not None for request, folder in work]
    if all(reused):
        yield (prepare(request, folder, workers) for request, folder in work)
        return
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],  # -P: no module of the working folder
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": python_path()},
        start_new_session=True,  # a terminal sends Ctrl-C to all processes of a session
    )
    with contextlib.suppress(BrokenPipeError):  # it died: the windows are prepared here
        process.stdin.write(pickle.dumps((work, workers)))  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]

    def wait() -> Iterator[Prepared]:
        for (request, folder), was_there in zip(work, reused, strict=True):
            while process.poll() is None and not _is_completed(request, folder):
                time.sleep(POLL_S)
            prepared = prepare(request, folder, workers)
            yield replace(prepared, reused=was_there)

    try:
        yield wait()
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # type: ignore[union-attr]  # ends the process
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)


def _is_completed(request: Request, folder: Path) -> bool:
    try:
        return find_completed(folder, request.description) is not None
    except DamagedError:  # the process prepares it again
        return False


def main() -> int:
    """Reads from standard input what to prepare, and prepares it; returns the exit code."""
    logging.getLogger("nq").addHandler(logging.NullHandler())  # the process that waits warns
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    try:
        try:
            work, workers = pickle.load(sys.stdin.buffer)
            threading.Thread(target=_interrupt_at_end_of_input, daemon=True).start()
            for request, folder in work:
                prepare(request, folder, workers)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process ends now anyway
    except BaseException:  # the process that waits raises the same error
        return 1
    return 0


def _interrupt_at_end_of_input() -> None:
    """Interrupts this process as Ctrl-C would once its standard input is closed, and ends it."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(CLEANUP_S)
    os._exit(1)


if __name__ == "__main__":
    os._exit(main())  # the destruction of the interpreter would wait for Beam's threads
