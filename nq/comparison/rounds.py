"""The runs of a comparison: each is ``nq answer`` in a process of its own, and is kept.

A run beside which other programs took much of the processor is repeated once.
"""

import contextlib
import io
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from nq import extras, storage
from nq.errors import DamagedError, Error
from nq.inference.load import tensorflow_device
from nq.memo import Memo
from nq.report.comparison import ComparisonRow, row
from nq.runs.measure import BUSY
from nq.runs.profile_choice import COMPARED
from nq.runs.record import quality
from nq.runs.scoring import RunProgress
from nq.text import counted
from nq.worker import Worker, run_module

log = logging.getLogger(__name__)


class ChangedError(Error):
    """A run has read other data or another model than the comparison is about."""


LONGER = 1.3
"""The time to expect is told again if it is so many times longer than what was told."""
Run = Mapping[str, Any]
"""What is kept of a run: a ``ComparisonRow`` with the label of its row, its round and device."""


def answer_in_process(profile: str, options: Sequence[str]) -> dict[str, Any]:
    """Runs ``nq answer`` in a process of its own, which ends with this one.

    Returns its JSON result, with the seconds of the whole process as ``wall_s``. An ``Error`` has
    the error line of a run that failed.
    """
    arguments = ["nq.answer", *options, "--no-track", "--json", "--profile", profile]
    started, worker = time.perf_counter(), Worker(_run_module, name="nq answer")
    try:
        code, out, err = worker.call(arguments)
    finally:
        worker.end()
    if code:
        lines = err.strip().splitlines() or [f"exit code {code}"]
        (*_, error) = [line for line in lines if line.startswith("nq: error: ")] or lines
        raise Error(error.removeprefix("nq: error: "))
    result: dict[str, Any] = json.loads(out)
    if result["resumed_windows"]:  # it continued a run that was killed
        return answer_in_process(profile, options)
    return {**result, "wall_s": time.perf_counter() - started}


def _run_module(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Returns exit code, stdout and stderr of a module."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_module(arguments)
    return code, out.getvalue(), err.getvalue()


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
    one: ComparisonRow,
    options: Sequence[str],
    memo: Memo,
    is_right: Callable[[Run], bool],
    repeating: Callable[[], object],
) -> Run:
    """Returns what is kept of a run of a round; it is measured if it is not kept.

    Args:
        is_right: tells whether the folder of a run has what the comparison asks for. A kept run
            that is not right is measured again.
        repeating: is called before a repetition.

    Raises:
        ChangedError: the new run has read other data or another model; it is not kept.
        Error: the run failed.
    """
    if one.batch_size is not None:
        options = [*options, "--batch-size", str(one.batch_size)]
    if one.max_seq_length is not None:
        options = [*options, "--set", f"max_seq_length={one.max_seq_length}"]

    def compute() -> Run:
        result = answer_in_process(one.profile, options)
        if number and BUSY in result["speed_comparable"]:
            repeating()
            result = answer_in_process(one.profile, options)
        name, busy = Path(result["output"]).name, int(BUSY in result["speed_comparable"])
        own = row(result, name=name, busy=busy, quality=quality(result["metrics"]))
        around_s = result["wall_s"] - result["time"]["total_s"]
        return asdict(own) | {
            "label": one.label,
            "round": number,
            "first_start_s": (own.first_start_s or 0) + around_s,
            "device": result["device"],
            "wall_s": result["wall_s"],
        }

    part = part_name(number, one)
    is_kept = (memo.folder / part).exists()
    run = memo.computed(part, compute)
    if is_kept and not is_right(run):  # its folder was removed, or has another run now
        memo.remove(part)
        run = memo.computed(part, compute)
    if not is_right(run):
        memo.remove(part)
        raise ChangedError(f"data or models changed while {one.label} was measured: start again")
    return run


def part_name(number: int, one: ComparisonRow) -> str:
    """Returns the name of what the memo keeps of a row in a round."""
    model = storage.digest_json(one.model)[:8] if one.model else None
    parts = (one.profile, one.batch_size, one.max_seq_length, model)
    return f"{number:03d}-{'-'.join(str(part or '') for part in parts).rstrip('-')}.json"


def run_all(
    steps: Sequence[tuple[int, ComparisonRow]],
    measure: Callable[[int, ComparisonRow], Run],
    memo: Memo,
    report: RunProgress,
    needed: str = "",
) -> tuple[list[Run], dict[str, str]]:
    """Returns the runs of the rows that never failed, and by label the errors of the others.

    The error of the ``needed`` row is raised. The time to expect is logged after the first run, and
    again when it turns out to be longer, as where other programs run beside.
    """
    runs, errors, taken, told_s = list[Run](), dict[str, str](), dict[str, float](), 0.0
    for position, (number, one) in enumerate(steps, 1):
        is_kept, started = (memo.folder / part_name(number, one)).exists(), time.monotonic()
        try:
            runs += [] if one.label in errors else [measure(number, one)]
        except Error as error:
            if one.label == needed or isinstance(error, ChangedError):
                raise
            errors[one.label] = str(error)
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
    for number in {run["round"] for run in earlier.get("runs", ()) if run.get("busy")} - {0}:
        for path in memo.folder.glob(f"{number:03d}-*"):
            memo.remove(path.name)
    return list(earlier.get("recorded", ()))
