"""Preprocessing in a process of its own, while this one loads a model and predicts.

The process makes the folders that ``prepare`` would make, one after the other, and tells nothing
but its progress: if it fails, a folder is not there, and whoever needs it prepares it and learns
why. It ends when
the process that started it does, however that ends, and hears of Ctrl-C from that one alone.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from nq.preprocess.prepare import Prepared, Request, prepare
from nq.preprocess.processes import python_path
from nq.preprocess.store import find_completed

PATIENCE_S = 10.0
POLL_S = 0.02


Work = Sequence[tuple[Request, Path]]
"""What to prepare, and where."""


@contextlib.contextmanager
def ahead(work: Work, workers: int | None = None) -> Iterator[Iterator[Prepared]]:
    """Begins to prepare windows; yields what waits for each, and raises as ``prepare`` does.

    Args:
        work: what ``prepare`` would be asked for, one after the other.
        workers: as for ``prepare``.
    """
    described = [request.describe() for request, _ in work]

    def missing(number: int) -> bool:
        return find_completed(work[number][1], described[number]) is None

    if not any(map(missing, range(len(work)))):
        yield (prepare(*one, workers) for one in work)
        return
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],  # -P: no module of the working folder
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": python_path()},
        start_new_session=True,  # a terminal sends Ctrl-C to all that share one
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died: prepared here then
        pickle.dump((work, workers), process.stdin)
        process.stdin.flush()

    def wait() -> Iterator[Prepared]:
        for number, one in enumerate(work):
            while process.poll() is None and missing(number):
                time.sleep(POLL_S)
            yield prepare(*one, workers)

    try:
        yield wait()
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Tells the process that nobody waits for it any more, and waits until it has tidied up."""
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()  # type: ignore[union-attr]
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> int:
    """The process: reads what to prepare from its standard input, and prepares it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    try:
        try:
            work, workers = pickle.load(sys.stdin.buffer)
            threading.Thread(target=_interrupt_when_alone, daemon=True).start()
            for request, output in work:
                prepare(request, output, workers)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends now anyway
    except BaseException:  # who waits will find nothing, and the same error
        return 1
    return 0


def _interrupt_when_alone() -> None:
    """Ends this process as Ctrl-C would once its standard input is closed."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    raise SystemExit(main())
