"""The job: input files -> a folder of windows as TFRecords, made once and then reused.

The Beam pipeline is in ``steps``, what Beam needs to behave in ``runner``, and the layout
of the folder in ``prepared``. Beam is imported only if there is something to make.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nq.formats import inputs
from nq.preprocess.store import (
    DEAD_LETTERS,
    Prepared,
    Request,
    claimed,
    clear,
    encode_dead_letter,
    find_completed,
    publish,
    unfinished,
)

__all__ = ["Prepared", "Request", "encode_dead_letter", "prepare"]

LARGE_INPUT_BYTES = 64 << 20
BAR_INTERVAL_S = 0.2


def prepare(
    request: Request,
    output: str | Path,
    workers: int | None = None,
    beam_options: Sequence[str] = (),
) -> Prepared:
    """Runs the job, or reuses ``output`` if an equal request was completed there.

    Args:
        request: what to make.
        output: the folder for shards, manifest, dead letters and mark.
        workers: processes; by default one for small input, all cores for large.
        beam_options: anything Beam understands, such as ``--runner=DirectRunner``.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: an input file is of no use as a whole.
        Error: the folder is not free, or the job failed.
    """
    folder = Path(output)
    described = request.describe()
    found = find_completed(folder, described)
    if found:
        return found
    inputs.check_files(request.files)
    with claimed(folder):
        clear(folder)
        started = time.perf_counter()
        with unfinished(folder) as part:
            counts = _make(request, part, workers, beam_options)
            counts["seconds"] = time.perf_counter() - started
            return publish(part, folder, described, counts)


def default_workers(files: Sequence[str]) -> int:
    """One process for small input; starting more costs seconds."""
    size = sum(os.path.getsize(f) for f in files)
    return 1 if size < LARGE_INPUT_BYTES else len(os.sched_getaffinity(0))


def _make(
    request: Request, part: Path, workers: int | None, beam_options: Sequence[str]
) -> dict[str, Any]:
    """Writes shards and dead letters into ``part``; returns what is to be counted."""
    from nq.preprocess.beam import runner, transforms

    asked = workers or runner.asked_workers(beam_options)
    workers = asked or default_workers(request.files)
    work = transforms.shares(len(request.files), workers)
    progress = part / "progress"
    progress.touch()
    with _bar(progress):
        counters = runner.execute(
            lambda pipeline: transforms.add(pipeline, request, work, part, progress),
            workers,
            beam_options,
            part,
        )
    return {
        "examples": counters.get(transforms.EXAMPLES, 0),
        "windows": counters.get(transforms.WINDOWS, 0),
        "dead_letters": transforms.merge_dead_letters(part, part / DEAD_LETTERS),
    }


@contextlib.contextmanager
def _bar(progress: Path) -> Iterator[None]:
    """A progress bar over a file that the workers append one byte an example to."""
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
