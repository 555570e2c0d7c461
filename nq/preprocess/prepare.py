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

from nq import extras
from nq.formats import inputs
from nq.preprocess import local
from nq.preprocess.request import Request
from nq.preprocess.store import (
    Prepared,
    clear,
    exclusive_folder,
    find_completed,
    publish,
    unfinished,
)

__all__ = ["Prepared", "Request", "prepare"]

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
        Error: the folder is not free, the job failed, or Beam is needed and not installed.
    """
    folder = Path(output)
    completed = find_completed(folder, request.description)
    if completed:
        return completed
    if beam_options or (workers or 1) > 1:
        extras.require("beam")
    inputs.check_files(request.files)
    with exclusive_folder(folder):
        clear(folder)
        started = time.perf_counter()
        with unfinished(folder) as part:
            if extras.missing("beam"):
                if default_workers(request.files) > 1:
                    log.info("one process prepares the windows; pip install 'nq[beam]' for more")
                counts = local.write_windows(request, part)
            else:
                from nq.preprocess.beam import job

                workers = workers or job.requested_workers(beam_options)
                workers = workers or default_workers(request.files)
                counts = job.write_windows(request, part, workers, beam_options)
            seconds = time.perf_counter() - started
            return publish(part, folder, request.description, {**counts, "seconds": seconds})


def default_workers(files: Sequence[str]) -> int:
    """Returns one process for small input, because starting more takes seconds."""
    size = sum(os.path.getsize(f) for f in files)
    return 1 if size < LARGE_INPUT_BYTES else len(os.sched_getaffinity(0))
