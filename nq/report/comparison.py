"""The recorded runs of an experiment as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from nq.text import counted, truncate, visible
from nq.tracking import History, RecordedRun

HEAD = (
    *("name", "profile", "total s", "windows/s", "micro-F1", "changed answers", "peak MB"),
    "speed comparable",
)
LARGEST_FIRST = ("windows_per_s", "micro_f1", "started")
NAME_WIDTH = 32


def ordered(runs: Sequence[RecordedRun], by: str) -> list[RecordedRun]:
    """Returns the runs with the best first: the fastest, the most accurate, the smallest.

    Args:
        runs: in any order.
        by: name of a field; runs that have no value come last.
    """

    def key(run: RecordedRun) -> tuple[bool, Any]:
        value = getattr(run, by)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return True, 0
        return False, -value if by in LARGEST_FIRST else value

    return sorted(runs, key=key)


def table(history: History, runs: Sequence[RecordedRun]) -> str:
    """Returns the table as text, with notes below it.

    Args:
        history: of the experiment.
        runs: its runs, in the order of the table.
    """
    lines = []
    if runs:
        machines = len({run.machine for run in runs if run.machine})
        rows = [HEAD, *(cells(run, machines > 1) for run in runs)]
        lines += _grid([[visible(cell) for cell in row] for row in rows])
    else:
        lines.append(visible(f"no run with times in the experiment {history.experiment}"))
    if history.others:
        lines.append(f"left out, because they have no times or no profile: {history.others}")
    lines.append(f"in MLflow: {history.how_to_open}")
    return "\n".join(lines)


def cells(run: RecordedRun, show_machine: bool = False) -> list[str]:
    """Returns the texts of a run in the columns ``HEAD``; empty where it has no figure.

    Args:
        run: the run.
        show_machine: whether there are runs of several machines.
    """
    return [
        truncate(short_name(run), NAME_WIDTH),
        run.profile,
        number(run.total_s, 1),
        number(run.windows_per_s, 1),
        number(run.micro_f1, 4),
        number(run.changed, 0),
        number(run.peak_mb, 0),
        note(run, show_machine),
    ]


def short_name(run: RecordedRun) -> str:
    """Returns the name of a run without its profile, which stands beside it."""
    return run.name.removeprefix(f"{run.profile} · ")


def note(run: RecordedRun, show_machine: bool) -> str:
    """Returns whether the speed of a run can be compared with others, and on what it ran."""
    ended = [] if run.status == "FINISHED" else [f"the run is {run.status}"]
    machine = [f"on {run.machine}"] if show_machine and run.machine else []
    processes = filter(None, [processes_line(run.instances, run.threads)])
    return "; ".join([*filter(None, [run.speed_comparable]), *processes, *ended, *machine])


def processes_line(instances: int | None, threads: int | None) -> str:
    """Returns the numbers of instances and threads in words; empty if none was told.

    >>> processes_line(2, 1), processes_line(None, 4), processes_line(None, None)
    ('2 instances of 1 thread', '4 threads', '')
    """
    if threads is None:
        return ""
    of_threads = counted(threads, "thread")
    return of_threads if instances is None else f"{counted(instances, 'instance')} of {of_threads}"


def number(value: float | None, digits: int) -> str:
    """Returns a figure as text; empty without one."""
    return "" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def to_dict(history: History, runs: Sequence[RecordedRun]) -> dict[str, Any]:
    """Returns the comparison as JSON values."""
    return {
        "experiment": history.experiment,
        "runs": [asdict(run) for run in runs],
        "others": history.others,
        "how_to_open": history.how_to_open,
    }


def _grid(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns lines with aligned columns, texts to the left and figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = (0, 1, len(HEAD) - 1)
    return [
        "  ".join(
            f"{cell:<{width}}" if i in texts else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
