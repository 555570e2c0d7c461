"""The runs of a comparison: each is in a process of its own, and is kept.

A run beside which other programs took much of the processor is repeated once.
"""

import contextlib
import io
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from nq import extras, storage
from nq.errors import ChangedError, DamagedError, Error
from nq.inference.load import tensorflow_device
from nq.lab.choose import COMPARED
from nq.lab.rows import Row, row
from nq.memo import Memo
from nq.questions import Questions
from nq.runs.folder import FinishedRun, RunFolder
from nq.runs.job import Job
from nq.runs.measure import BUSY, OnPhase
from nq.runs.record import quality
from nq.runs.run import run
from nq.runs.scoring import RunProgress
from nq.text import counted
from nq.worker import Worker

log = logging.getLogger(__name__)

LONGER = 1.3
"""The time to expect is told again if it is so many times longer than what was told."""
Run = Mapping[str, Any]
"""What is kept of a run: a ``Row`` with the label of its row, its round and device."""


def answer_in_process(job: Job) -> dict[str, Any]:
    """Runs a job in a process of its own, which ends with this one.

    Returns what ``metrics.json`` has, with the seconds of the whole process as ``wall_s``.
    """
    started = time.perf_counter()
    worker = Worker(_answer, name="nq answer")
    try:
        result: dict[str, Any] = worker.call(job)
    finally:
        worker.end()
    if result["resumed_windows"]:  # it continued a run that was killed
        return answer_in_process(job)
    return {**result, "wall_s": time.perf_counter() - started}


def _answer(job: Job) -> dict[str, Any]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return run(job).to_dict()


def device_in_process() -> str:
    """Returns the device that TensorFlow uses in another process, since it takes a GPU's memory."""
    if not extras.has_gpu():
        return "CPU"
    worker = Worker(tensorflow_device, name="asks for the device")
    try:
        return str(worker.call(None))
    finally:
        worker.end()


def measured(
    number: int,
    one: Row,
    job: Job,
    questions: Questions,
    memo: Memo,
    label: str,
    phase: OnPhase,
) -> Run:
    """Returns what is kept of a run of a round; it is measured if it is not kept.

    A kept run whose folder was removed, or has another run now, is measured again. ``phase``
    receives the ``label``, and once more before a repetition.

    Raises:
        ChangedError: the new run has read other data or another model; it is not kept.
        Error: the run failed.
    """

    phase(label)

    def compute() -> Run:
        result = answer_in_process(job)
        if number and BUSY in result["speed_comparable"]:
            phase(f"{label}: repeating, the machine was busy")
            result = answer_in_process(job)
        own = row(
            result,
            name=Path(result["output"]).name,
            busy=int(BUSY in result["speed_comparable"]),
            quality=quality(result["metrics"]),
        )
        around_s = result["wall_s"] - result["time"]["total_s"]
        return asdict(own) | {
            "label": one.label,
            "round": number,
            "first_start_s": (own.first_start_s or 0) + around_s,
            "device": result["device"],
            "wall_s": result["wall_s"],
        }

    expected = RunFolder.of(job, questions)
    part = part_name(number, one)
    if not _is_there(expected):
        memo.remove(part)
    kept = memo.computed(part, compute)
    if not _is_there(expected):
        memo.remove(part)
        raise ChangedError(f"data or models changed while {one.label} was measured: start again")
    return kept


def _is_there(folder: RunFolder) -> bool:
    """Returns whether the folder has a finished run as it is described."""
    try:
        return (
            FinishedRun(folder.path, check=False).description.items() >= folder.description.items()
        )
    except (Error, OSError, ValueError):
        return False


def part_name(number: int, one: Row) -> str:
    """Returns the name of what the memo keeps of a row in a round."""
    model = storage.digest_json(one.model)[:8] if one.model else None
    parts = (one.profile, one.batch_size, one.max_seq_length, model)
    return f"{number:03d}-{'-'.join(str(part or '') for part in parts).rstrip('-')}.json"


def run_all(
    steps: Sequence[tuple[int, Row]],
    measure: Callable[[int, Row], Run],
    memo: Memo,
    report: RunProgress,
    needed: str = "",
) -> tuple[list[Run], dict[str, str]]:
    """Returns the runs of the rows that never failed, and by label the errors of the others.

    The error of the ``needed`` row is raised. The time to expect is logged after the first run, and
    again when it turns out to be longer, as where other programs run beside.
    """
    runs = list[Run]()
    errors = dict[str, str]()
    taken = dict[str, float]()
    told_s = 0.0
    for position, (number, one) in enumerate(steps, 1):
        is_kept = (memo.folder / part_name(number, one)).exists()
        started = time.monotonic()
        try:
            if one.label not in errors:
                runs.append(measure(number, one))
        except Exception as error:  # of any library under the profile of the row
            if one.label == needed or isinstance(error, ChangedError):
                raise
            errors[one.label] = str(error) or type(error).__name__
        report(1, len(steps))
        if not is_kept:
            taken[one.label] = time.monotonic() - started
        left = [
            row.label
            for kept, row in steps[position:]
            if row.label not in errors and not (memo.folder / part_name(kept, row)).exists()
        ]
        if left and taken:
            expected_s = sum(taken.get(label, mean(taken.values())) for label in left)
            if expected_s > LONGER * told_s:
                runs_left = counted(len(left), "run")
                log.info("%s left: about %.1f minutes", runs_left, expected_s / 60)
                told_s = expected_s
            told_s -= told_s / len(left)  # what the next run is expected to take
    return [run for run in runs if run["label"] not in errors], errors


def reopened(memo: Memo) -> list[str]:
    """Removes the busy rounds of a comparison that has ended; returns the runs recorded of it."""
    earlier = dict[str, Any]()
    with contextlib.suppress(FileNotFoundError, DamagedError):
        earlier = storage.read_json(memo.folder.parent / COMPARED)
    for number in {one["round"] for one in earlier.get("runs", ()) if one.get("busy")} - {0}:
        for path in memo.folder.glob(f"{number:03d}-*"):
            memo.remove(path.name)
    return list(earlier.get("recorded", ()))
