"""The job: input files -> a folder of windows as TFRecords, made once and then reused.

Beam is imported only if there is something to make; where it is not installed, one process makes
the same files in a plain loop.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

from nq import extras, storage
from nq.errors import DamagedError
from nq.formats import inputs
from nq.preprocess import local
from nq.preprocess.request import Request
from nq.preprocess.store import (
    COMPLETED,
    Prepared,
    clear,
    complete,
    find_completed,
    unfinished,
)

__all__ = ["Prepared", "Request", "find_whole", "prepare", "prepare_again"]

log = logging.getLogger(__name__)

LARGE_INPUT_BYTES = 64 << 20


def prepare(
    request: Request,
    output: str | Path,
    workers: int | None = None,
    beam_options: Sequence[str] = (),
) -> Prepared:
    """Makes the windows of a request, or reuses ``output`` if it holds them already.

    Args:
        request: what to make.
        output: the folder for shards, manifest, dead letters and mark.
        workers: processes; by default one for small input, all cores for large.
        beam_options: options of Apache Beam, such as ``--runner=DirectRunner``.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: an input file cannot be used at all, or Beam refuses an option.
        Error: the folder holds files of others or an input, the job failed, an input file changed
            meanwhile, or Beam is needed and not installed.
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
            if extras.missing("beam"):
                if default_workers(request.files) > 1:
                    log.info(
                        "one process prepares the windows; %s for more", extras.install("beam")
                    )
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
    """Returns the windows of a request if ``folder`` has them and they are not damaged.

    Damage is logged. The content of the shards is checked when it is read.
    """
    try:
        return find_completed(folder, request.description)
    except DamagedError as error:
        log.warning("%s; the windows are prepared again", error)
        return None


def prepare_again(
    request: Request, output: str | Path, damage: DamagedError, workers: int | None = None
) -> Prepared:
    """Makes the windows of a request once more, because those in ``output`` are damaged.

    The ``damage`` that was found is logged. Raises as ``prepare`` does.
    """
    log.warning("%s; the windows are prepared again", damage)
    (Path(output) / COMPLETED).unlink(missing_ok=True)
    return prepare(request, output, workers)


def check_output(request: Request, folder: Path) -> None:
    """Checks that the windows of a request may be in a folder; changes nothing."""
    if not (folder / COMPLETED).is_file():
        storage.check(folder, storage.WINDOWS, (*request.files, request.tokenizer))


def default_workers(files: Sequence[str]) -> int:
    """Returns one process for small input, because starting more takes seconds."""
    size = sum(os.path.getsize(f) for f in files)
    return 1 if size < LARGE_INPUT_BYTES else len(os.sched_getaffinity(0))
