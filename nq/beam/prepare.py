"""The job: input files -> a folder of windows as TFRecords, made once and then reused.

Beam makes the windows of large input, and where workers or options of Beam are given. Where it is
not installed, and for small input, one process makes the same files in a plain loop. ``prefetch``
does the job in a process of its own, while this one loads a model and predicts.
"""

import contextlib
import glob
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nq import child, extras, storage
from nq.errors import DamagedError
from nq.formats import inputs
from nq.preprocess import local
from nq.preprocess.request import Request
from nq.preprocess.store import COMPLETED, Prepared, clear, complete, find_completed
from nq.storage import unfinished
from nq.text import visible

__all__ = ["Prepared", "Request", "Work", "prefetch", "prepare", "prepare_again"]

log = logging.getLogger(__name__)

LARGE_INPUT_BYTES = 64 << 20
CLEANUP_S, END_TIMEOUT_S, POLL_S = 2.0, 3.0, 0.02

Work = Sequence[tuple[Request, Path]]
"""What to prepare, and the folder for each."""


def prepare(
    request: Request,
    output: str | Path,
    workers: int | None = None,
    beam_options: Sequence[str] = (),
) -> Prepared:
    """Makes the windows of a request, or reuses ``output`` if it holds them already.

    Args:
        workers: processes of Beam; by default all cores for large input, and for small input a
            plain loop in this process, which needs no start of Beam.
        beam_options: options of Apache Beam, such as ``--runner=DirectRunner``.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: an input file cannot be used at all, or Beam refuses an option.
        Error: the folder has other files, the job failed, an input changed, or there is no Beam.
    """
    folder = Path(output)
    check_output(request, folder)
    completed = find_whole(request, folder)
    if completed:
        return completed
    if beam_options or (workers or 1) > 1:
        extras.require("beam")
    inputs.check_files(request.files)
    request.check_unchanged()
    with storage.hold(folder, storage.WINDOWS, (*request.files, request.tokenizer)):
        clear(folder)
        started = time.perf_counter()
        with unfinished(folder) as part:
            # Beam takes *, ? and [ in a path for patterns, and refuses a path that is not UTF-8.
            is_odd = glob.escape(str(part)) != visible(str(part))
            is_small = default_workers(request.files) == 1
            is_asked = workers is not None or bool(beam_options)
            if is_odd or extras.missing("beam") or (is_small and not is_asked):
                if not is_small:
                    advice = "give another folder" if is_odd else extras.install("beam")
                    log.info("one process prepares the windows; %s for more", advice)
                counts = local.write_windows(request, part)
            else:
                from nq.beam import pipelines, runner

                workers = workers or runner.requested_workers(beam_options)
                workers = workers or default_workers(request.files)
                counts = pipelines.write_windows(request, part, workers, beam_options)
            request.check_unchanged()
            seconds = time.perf_counter() - started
            return complete(part, folder, request.description, {**counts, "seconds": seconds})


def find_whole(request: Request, folder: Path) -> Prepared | None:
    """Returns the windows of a request if ``folder`` has them; damage to them is logged."""
    try:
        return find_completed(folder, request.description)
    except DamagedError as error:
        log.warning("%s; the windows are prepared again", error)
        return None


def prepare_again(
    request: Request, output: str | Path, damage: DamagedError, workers: int | None = None
) -> Prepared:
    """Makes the windows of a request once more, because those in ``output`` are damaged."""
    log.warning("%s; the windows are prepared again", damage)
    (Path(output) / COMPLETED).unlink(missing_ok=True)
    return prepare(request, output, workers)


def check_output(request: Request, folder: Path) -> None:
    """Checks that the windows of a request may be in a folder; changes nothing."""
    if not (folder / COMPLETED).is_file():
        storage.check_folder(folder, storage.WINDOWS, (*request.files, request.tokenizer))


def default_workers(files: Sequence[str]) -> int:
    """Returns one process for small input, because starting more takes seconds."""
    size = sum(os.path.getsize(f) for f in files)
    return 1 if size < LARGE_INPUT_BYTES else len(os.sched_getaffinity(0))


@contextlib.contextmanager
def prefetch(work: Work, workers: int | None = None) -> Iterator[Iterator[Prepared]]:
    """Prepares the windows of all requests of ``work`` in order, ahead in another process.

    That process reports nothing: if it fails, a folder is missing, which is prepared here then. It
    ends with this process, however that ends. It has ``CLEANUP_S`` to clean up then; what it
    leaves, the next job removes.

    Yields:
        An iterator that waits for each folder and raises as ``prepare`` does. ``Prepared.seconds``
        is the work, not the wait; ``reused`` is false if the other process made the folder.
    """
    reused = [find_whole(request, folder) is not None for request, folder in work]
    if all(reused):
        yield (prepare(request, folder, workers) for request, folder in work)
        return
    process, connection = child.start(f"from {__name__} import prepare_all; prepare_all({{}})")
    with contextlib.suppress(OSError):  # it died: the windows are prepared here
        connection.send((work, workers))

    def wait() -> Iterator[Prepared]:
        for (request, folder), was_there in zip(work, reused, strict=True):
            while process.poll() is None:
                with contextlib.suppress(DamagedError):  # the process prepares it again
                    if find_completed(folder, request.description):
                        break
                time.sleep(POLL_S)
            yield replace(prepare(request, folder, workers), reused=was_there)

    try:
        yield wait()
    finally:
        connection.close()  # ends the process
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)


def prepare_all(number: int) -> None:
    """Prepares each request that the socket with the descriptor ``number`` receives."""
    connection: Connection[Any, Any] = Connection(number)

    def interrupt_at_end() -> None:
        connection.poll(None)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(CLEANUP_S)
        os._exit(1)

    logging.getLogger().addHandler(logging.NullHandler())  # the process that waits warns
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    try:
        work, workers = connection.recv()
        threading.Thread(target=interrupt_at_end, daemon=True).start()
        for request, folder in work:
            prepare(request, folder, workers)
    finally:  # without an error, which the process that waits raises too, or a wait for threads
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os._exit(0)
