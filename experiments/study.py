"""The frame of all studies: options, resumable results, rounds, tables, one MLflow run a row.

A study measures cells: several rows in the same rounds. Each row is JSON values: its key (what was
measured) and every timing of its rounds. ``NAME.json`` is written after each cell, so that the same
command continues where it was interrupted; tables, plot, metrics and verdicts follow from it alone.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from experiments import Values, command, machine
from experiments.command import markdown
from experiments.intervals import ROUNDS, rotated
from nq import extras, storage, tracking
from nq.commands import arguments, terminal
from nq.config import TrackingConfig
from nq.errors import Error
from nq.progress import ProgressBar
from nq.runs.record import measured_run
from nq.storage import atomic_write

Row = Mapping[str, Any]
Rows = Sequence[Row]
R = TypeVar("R", bound=Row)
Step = Callable[[], Values]
"""Computes a row once; returns what it adds to the lists of the row, by their names."""


@dataclass(frozen=True)
class Study:
    """What the frame needs to know of a study.

    Args:
        name: of its files and of the module ``experiments.NAME``.
        cells: returns the cells of a row by the heads of their columns, ``None`` for empty ones;
            its second argument are all rows.
        claims: returns the verdict of each claim of the source.
        plot: draws the rows into a figure of matplotlib.
        params: of a row's MLflow run, those of these fields that it has. They name it, too.
        metrics: of a row's MLflow run.
    """

    name: str
    cells: Callable[[Row, Rows], Row]
    claims: Callable[[Rows], Mapping[str, str]]
    plot: Callable[[Rows, Any], None]
    params: Sequence[str]
    metrics: Callable[[Row], Mapping[str, float | None]]

    @property
    def kind(self) -> storage.Kind:
        """The folder that the study writes."""
        return storage.Kind(
            name=self.name,
            what=f"a study of experiments.{self.name}",
            files=rf"{self.name}(?:-\w+)?\.(?:json|png)",
        )

    def table(self, rows: Rows) -> str:
        """Returns the rows as a Markdown table."""
        lines = [self.cells(row, rows) for row in rows]
        head = [*lines[0]] if lines else []
        return markdown(
            head, *(["" if x is None else str(x) for x in line.values()] for line in lines)
        )

    def verdicts(self, rows: Rows) -> str:
        """Returns the claims with their verdicts as a Markdown table."""
        return markdown(("claim", "verdict"), *self.claims(rows).items())

    def draw(self, rows: Rows, path: Path) -> None:
        """Draws the rows into a file."""
        from matplotlib.figure import Figure

        figure = Figure(layout="constrained")
        self.plot(rows, figure)
        for axes in figure.axes:
            if axes.get_legend_handles_labels()[0]:
                axes.legend(fontsize="xx-small")
        figure.savefig(path, dpi=120)


def line(axes: Any, points: Sequence[tuple[float, float]], **style: Any) -> None:
    """Draws a line through points, if there are any."""
    if points:
        axes.plot(*zip(*sorted(points), strict=True), **{"marker": ".", **style})


def whole_numbers(figure: Any) -> None:
    """Lets the horizontal axes of a figure have ticks at whole numbers alone."""
    for axes in figure.axes:
        axes.xaxis.get_major_locator().set_params(integer=True)


def add_options(parser: argparse.ArgumentParser, name: str, rounds: int = ROUNDS) -> None:
    """Adds the options of every study."""
    command.add_option(parser, "rounds", rounds, "rounds")
    text = f"folder of {name}.json and {name}.png"
    command.add_option(parser, "output", Path("runs") / name, text)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="try the command with a tiny model",
    )
    arguments.add_tracking(parser)


def installed(names: Sequence[str], missing: Callable[[str], str]) -> list[str]:
    """Returns the names of which nothing is missing; says what is missing of the others."""
    left_out = {name: reason for name in names if (reason := missing(name))}
    for name, reason in left_out.items():
        print(f"nq: {name} left out: {reason}", file=sys.stderr)
    return [name for name in names if name not in left_out]


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Returns the rows by their values of some fields, in the order in which these appear."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in names), []).append(row)
    return groups


def find(rows: Iterable[R], values: Values) -> R | None:
    """Returns the first row with some values, ``None`` if there is none."""
    return next((row for row in rows if all(row.get(k) == v for k, v in values.items())), None)


def beside(row: Row, rows: Iterable[Row], names: Iterable[str], **values: Any) -> Row | None:
    """Returns the row that differs from a row by ``values`` and has the same fields ``names``."""
    return find(rows, {**{name: row.get(name) for name in names}, **values})


def timed(pairs: Sequence[tuple[Values, Step]], rounds: int) -> list[Values]:
    """Runs the steps of rows in rounds of rotating order; returns the rows with their timings."""
    for number in range(rounds if pairs else 0):
        for row, step in rotated(pairs, number):
            for name, value in step().items():
                row[name].append(value)
    return [row for row, _ in pairs]


class Results:
    """The rows that are measured so far, kept in a file for each part of the results.

    ``settings`` are what all rows have in common besides the number of rounds.

    Raises:
        Error: the file has rows of another machine or with other settings, or no rows.
    """

    def __init__(
        self, study: Study, args: argparse.Namespace, part: str = "", /, **settings: Any
    ) -> None:
        extras.require("plots")  # not after hours of measuring
        self.path = args.output / f"{study.name}{part and f'-{part}'}.json"
        self.machine = machine.describe()
        self.settings = {"rounds": args.rounds, **settings}
        self.rows: list[Values] = []
        if self.path.is_file():
            self._read()

    def find(self, key: Values) -> Values | None:
        """Returns the row with these values, ``None`` if it is not measured yet."""
        return find(self.rows, key)

    def add(self, *rows: Values) -> None:
        """Adds rows and writes the file."""
        self.rows += rows
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as file:
            file.write((json.dumps(self.to_dict(), indent=1) + "\n").encode())

    def to_dict(self) -> Values:
        """Returns the content of the file."""
        return {**self.settings, "machine": self.machine, "rows": self.rows}

    def _read(self) -> None:
        try:
            values = json.loads(self.path.read_bytes())
            rows = values["rows"]
            expected = {**self.settings, "machine": self.machine}
        except (ValueError, KeyError, TypeError) as error:
            raise Error(
                f"{self.path} has no results of a study ({type(error).__name__}): remove it, or "
                "give another --output"
            ) from error
        differing = [name for name, value in expected.items() if values.get(name) != value]
        if differing:
            raise Error(
                f"{self.path} was measured with another {' and '.join(differing)}: give another "
                "--output, or remove it"
            )
        self.rows = rows


Cell = tuple[Values, Callable[[], Sequence[Values]]]
"""What names the rows of a cell, and what measures them."""


def measure(
    study: Study,
    args: argparse.Namespace,
    cells: Callable[[Results], Sequence[Cell]],
    files: Iterable[str] = (),
    **settings: Any,
) -> int:
    """Measures the cells that are missing, and shows the results; returns the exit code.

    ``cells`` returns all of them, of the rows that are measured so far. ``files`` are those that
    are read, ``settings`` what all rows have in common besides the number of rounds.
    """
    started = time.time()
    with storage.hold(args.output, study.kind, files):
        results = Results(study, args, **settings)
        with ProgressBar(study.name, "cells") as bar:
            every = cells(results)
            for key, rows in every:
                if results.find(key) is None:
                    results.add(*rows())
                bar(1, len(every))
        return finish(study, args, results, started)


def finish(study: Study, args: argparse.Namespace, results: Results, started: float) -> int:
    """Draws, records and prints the results; returns the exit code of the command."""
    results.add()
    picture = args.output / f"{study.name}.png"
    if results.rows:
        study.draw(results.rows, picture)
    track = arguments.tracking_config(args)
    if results.rows and track:
        record(study, track, args, results.rows, started)
    if args.json:
        terminal.print_json(results.to_dict())
    else:
        print(study.table(results.rows), study.verdicts(results.rows), sep="\n")
        print(f"written to {results.path} and {picture.name}")
    return 0


def record(
    study: Study,
    track: TrackingConfig,
    args: argparse.Namespace,
    rows: Rows,
    started: float,
) -> None:
    """Records one MLflow run for each row, all with the same tag and the time of the study."""
    source = f"experiments.{study.name}"
    period = (started, time.time())
    text = f"A row of the study `{source}`; the artifacts of its first row have all timings."
    tags = {
        "study": f"{study.name} {time.strftime('%Y-%m-%d %H:%M:%S')}",
        tracking.DESCRIPTION: text,
        tracking.SPEED_COMPARABLE: "yes",
    }
    for row in rows:
        params = {name: row[name] for name in study.params if row.get(name) not in (None, "")}
        title = ", ".join(f"{name} {value}" for name, value in params.items())
        with measured_run(track, f"{title} · {study.name}", source, tags, period) as run:
            run.params({"rounds": args.rounds, **params})
            run.metrics(study.metrics(row))
            if row is rows[0]:
                run.artifacts([args.output / f"{study.name}.{kind}" for kind in ("json", "png")])
