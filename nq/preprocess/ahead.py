"""Preprocessing in a process of its own, while this one imports TensorFlow and loads a model.

The process makes the folder that ``prepare`` would make, and tells nothing but its progress: if
it fails, the folder is not there, and whoever needs it prepares it and learns why. It ends when
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
from collections.abc import Callable, Iterator
from pathlib import Path

from nq.preprocess.job import Prepared, Request, prepare
from nq.preprocess.prepared import find_completed
from nq.preprocess.processes import python_path

PATIENCE_S = 10.0


@contextlib.contextmanager
def ahead(
    request: Request, output: Path, workers: int | None = None
) -> Iterator[Callable[[], Prepared]]:
    """Begins to prepare windows; yields what waits for them, and raises as ``prepare`` does.

    Args:
        request, output, workers: as for ``prepare``.
    """
    if find_completed(output, request.describe()):
        yield lambda: prepare(request, output, workers)
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
        pickle.dump((request, output, workers), process.stdin)
        process.stdin.flush()

    def wait() -> Prepared:
        process.wait()
        return prepare(request, output, workers)

    try:
        yield wait
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
            request, output, workers = pickle.load(sys.stdin.buffer)
            threading.Thread(target=_interrupt_when_alone, daemon=True).start()
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
