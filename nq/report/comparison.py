"""The recorded runs of an experiment: a table, and an HTML page without scripts or other files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nq.report.charts import Axis
from nq.text import counted, grid, truncate, visible
from nq.tracking import (
    CHANGED,
    INSTANCES,
    MACHINE,
    MICRO_F1,
    PEAK_MB,
    PROFILE,
    SPEED_COMPARABLE,
    THREADS,
    TOTAL_S,
    WINDOWS_PER_S,
    color,
    search_runs,
)

HEAD = (
    *("name", "profile", "total s", "windows/s", "micro-F1", "changed answers", "peak MB"),
    "speed comparable",
)
TEXT_COLUMNS = (0, 1, len(HEAD) - 1)
LARGEST_FIRST = ("windows_per_s", "micro_f1", "started")
NAME_WIDTH, LABEL_HEIGHT = 32, 15


@dataclass(frozen=True)
class RecordedRun:
    """The figures of one run that are compared; ``None`` or empty where it has none."""

    name: str
    profile: str
    total_s: float
    windows_per_s: float | None
    micro_f1: float | None
    changed: int | None  # answers that differ from the run that it was compared with
    peak_mb: float | None  # MiB
    speed_comparable: str  # "yes", or "no" with the reasons
    machine: str
    status: str  # of MLflow
    started: float  # seconds since 1970
    run_id: str
    instances: int | None = None
    threads: int | None = None  # of each instance; ``None`` if that was left to the libraries


@dataclass(frozen=True)
class History:
    """The runs of an experiment that have a time and a profile, and the number of all others."""

    experiment: str
    runs: tuple[RecordedRun, ...]
    others: int
    how_to_open: str


def read_history(uri: str | None, experiment: str | None, by: str = "total_s") -> History:
    """Returns the recorded runs of an experiment, ordered; see ``nq.tracking.search_runs``."""

    def whole(value: Any) -> int | None:
        return None if value is None else int(value)

    name, entities, how_to_open = search_runs(uri, experiment)
    runs = []
    for run in entities:
        metrics, params, tags = run.data.metrics, run.data.params, run.data.tags
        if TOTAL_S in metrics and PROFILE in params:
            figures = RecordedRun(
                name=run.info.run_name or "",
                profile=params[PROFILE],
                total_s=metrics[TOTAL_S],
                windows_per_s=metrics.get(WINDOWS_PER_S),
                micro_f1=metrics.get(MICRO_F1),
                changed=whole(metrics.get(CHANGED)),
                peak_mb=metrics.get(PEAK_MB),
                speed_comparable=tags.get(SPEED_COMPARABLE, ""),
                machine=tags.get(MACHINE, ""),
                status=run.info.status,
                started=run.info.start_time / 1000,
                run_id=run.info.run_id,
                instances=whole(params.get(INSTANCES)),
                threads=whole(params.get(THREADS)),
            )
            runs.append(figures)
    return History(name, tuple(ordered(runs, by)), len(entities) - len(runs), how_to_open)


def ordered(runs: Sequence[RecordedRun], by: str) -> list[RecordedRun]:
    """Returns the runs with the best of a field first; those that have no value come last."""

    def key(run: RecordedRun) -> tuple[bool, Any]:
        value = getattr(run, by)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return True, 0
        return False, -value if by in LARGEST_FIRST else value

    return sorted(runs, key=key)


def rows(runs: Sequence[RecordedRun]) -> list[list[str]]:
    """Returns the texts of each run in the columns ``HEAD``; empty where it has no figure."""

    def number(value: float | None, digits: int) -> str:
        return "" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"

    several_machines = len({run.machine for run in runs if run.machine}) > 1
    return [
        [
            truncate(short_name(run), NAME_WIDTH),
            run.profile,
            number(run.total_s, 1),
            number(run.windows_per_s, 1),
            number(run.micro_f1, 4),
            number(run.changed, 0),
            number(run.peak_mb, 0),
            note(run, several_machines),
        ]
        for run in runs
    ]


def short_name(run: RecordedRun) -> str:
    """Returns the name of a run without its profile, which stands beside it."""
    return run.name.removeprefix(f"{run.profile} · ")


def note(run: RecordedRun, show_machine: bool) -> str:
    """Returns whether the speed of a run can be compared with others, and on what it ran."""
    parts = [
        run.speed_comparable,
        processes_line(run.instances, run.threads),
        "" if run.status == "FINISHED" else f"the run is {run.status}",
        f"on {run.machine}" if show_machine and run.machine else "",
    ]
    return "; ".join(filter(None, parts))


def processes_line(instances: int | None, threads: int | None) -> str:
    """Returns the numbers of instances and threads in words; empty without a number of threads.

    >>> processes_line(2, 1), processes_line(None, 4), processes_line(None, None)
    ('2 instances of 1 thread', '4 threads', '')
    """
    if threads is None:
        return ""
    of_threads = counted(threads, "thread")
    return of_threads if instances is None else f"{counted(instances, 'instance')} of {of_threads}"


def table(history: History) -> str:
    """Returns the table of the runs of an experiment as text, with notes below it."""
    if history.runs:
        cells = [[visible(cell) for cell in row] for row in rows(history.runs)]
        lines = [line.rstrip() for line in grid(HEAD, cells, TEXT_COLUMNS)]
    else:
        lines = [visible(f"no run with times in the experiment {history.experiment}")]
    if history.others:
        lines.append(f"left out, because they have no times or no profile: {history.others}")
    return "\n".join([*lines, f"in MLflow: {history.how_to_open}"])


def page(history: History) -> str:
    """Returns the HTML page: time against F1, and the table."""
    from jinja2 import Environment, PackageLoader

    runs = history.runs
    drawn = [run for run in runs if run.micro_f1 is not None and math.isfinite(run.total_s)]
    f1s = [run.micro_f1 or 0.0 for run in drawn] or [0.0]
    margin = (max(f1s) - min(f1s)) / 10 or 0.01  # marks on the edge of the picture are hard to see
    x = Axis(0.0, max([run.total_s for run in drawn], default=1.0) * 1.05, 62, 710)
    y = Axis(min(f1s) - margin, max(f1s) + margin, 412, 18)
    marks: list[dict[str, Any]] = []
    label_y = y.end
    for run in sorted(drawn, key=lambda run: (-(run.micro_f1 or 0.0), run.total_s)):
        label_y = max(label_y, y(run.micro_f1 or 0.0))
        comparable = not run.speed_comparable.startswith("no")
        texts = {"name": short_name(run), "note": note(run, False)}
        marks.append({"run": run, "label_y": label_y, "comparable": comparable, **texts})
        label_y += LABEL_HEIGHT
    environment = Environment(loader=PackageLoader("nq.report"), autoescape=True, trim_blocks=True)
    return environment.get_template("runs.html").render(
        title=f"{len(runs)} runs of the experiment {history.experiment}",
        how_to_open=history.how_to_open,
        head=HEAD,
        rows=list(zip([run.profile for run in runs], rows(runs), strict=True)),
        marks=marks,
        color=color,
        x=x,
        y=y,
    )
