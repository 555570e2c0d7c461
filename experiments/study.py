"""The frame of all studies: options, resumable results, table, plot, one MLflow run a row.

A study measures rows. Each row is JSON values: its key (what was measured) and every timing of its
rounds. ``NAME.json`` is written after each row, so that the same command continues where it was
interrupted; table, plot, metrics and verdicts are computed from it alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from experiments import machine
from experiments.intervals import ROUNDS
from nq import extras, storage, tracking
from nq.commands import arguments, terminal
from nq.errors import Error
from nq.storage import atomic_write

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """What the frame needs to know of a study.

    Args:
        name: of its files and of the module ``experiments.NAME``.
        table: returns the rows as Markdown.
        plot: draws the rows into a file.
        title: of a row's MLflow run.
        params: of a row's MLflow run.
        metrics: of a row's MLflow run.
    """

    name: str
    table: Callable[[Sequence[Row]], str]
    plot: Callable[[Sequence[Row], Path], None]
    title: Callable[[Row], str]
    params: Callable[[Row], Mapping[str, Any]]
    metrics: Callable[[Row], Mapping[str, float | None]]

    @property
    def kind(self) -> storage.Kind:
        """The folder that the study writes."""
        return storage.Kind(
            name=self.name,
            what=f"a study of experiments.{self.name}",
            files=rf"{self.name}(?:-\w+)?\.(?:json|png)",
        )


def add_options(parser: argparse.ArgumentParser, name: str, rounds: int = ROUNDS) -> None:
    """Adds the options of every study."""
    parser.add_argument(
        "--rounds",
        type=arguments.positive,
        default=rounds,
        metavar="N",
        help=f"rounds (default: {rounds})",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("runs") / name,
        metavar="DIR",
        help=f"folder of {name}.json and {name}.png (default: runs/{name})",
    )
    arguments.add_tracking(parser)
    arguments.add_common(parser)


class Results:
    """The rows that are measured so far, kept in a file.

    Args:
        path: the file; its rows are read if it exists.
        settings: what all rows have in common, such as the number of rounds.

    Raises:
        Error: the file has rows of another machine or with other settings, or no rows.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path, self.machine = path, machine.describe()
        self.settings = dict(settings)
        self.rows: list[dict[str, Any]] = []
        if path.is_file():
            self._read()

    @classmethod
    def of(cls, study: Study, args: argparse.Namespace, part: str = "", /, **settings: Any) -> Self:
        """Returns the results of a command, or a part of them that is kept in a file of its own."""
        extras.require("plots")  # not after hours of measuring
        path = args.output / f"{study.name}{part and f'-{part}'}.json"
        return cls(path, {"rounds": args.rounds, **settings})

    def find(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """Returns the row with these values, ``None`` if it is not measured yet."""
        matching = (row for row in self.rows if all(row.get(k) == v for k, v in key.items()))
        return next(matching, None)

    def add(self, *rows: dict[str, Any]) -> None:
        """Adds rows and writes the file."""
        self.rows += rows
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as file:
            file.write((json.dumps(self.to_dict(), indent=1) + "\n").encode())

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of the file."""
        return {**self.settings, "machine": self.machine, "rows": self.rows}

    def _read(self) -> None:
        try:
            values = json.loads(self.path.read_bytes())
            rows, expected = values["rows"], {**self.settings, "machine": self.machine}
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


def finish(study: Study, args: argparse.Namespace, results: Results, started: float) -> int:
    """Draws, records and prints the results of a study; returns the exit code of its command."""
    results.add()
    rows = results.rows
    if rows:
        study.plot(rows, args.output / f"{study.name}.png")
    if rows and not args.no_track:
        record(study, args, rows, started)
    if args.json:
        terminal.print_json(results.to_dict())
    else:
        print(study.table(rows), end="")
        print(f"written to {args.output}/{study.name}.json and {study.name}.png")
    return 0


def record(study: Study, args: argparse.Namespace, rows: Sequence[Row], started: float) -> None:
    """Records one MLflow run for each row, all with the same tag and the time of the study."""
    ended = time.time()
    tag = f"{study.name} {time.strftime('%Y-%m-%d %H:%M:%S')}"
    for row in rows:
        with tracking.Run(
            uri=args.tracking_uri,
            experiment=args.experiment,
            name=f"{study.title(row)} · {study.name}",
            source=f"experiments.{study.name}",
            system_metrics=False,
        ) as run:
            run.open(started=started)
            run.ended = ended
            run.tags({"study": tag, tracking.SPEED_COMPARABLE: "yes"})
            run.params({"rounds": args.rounds, **study.params(row)})
            run.metrics(study.metrics(row))
            if row is rows[0]:
                files = (f"{study.name}.json", f"{study.name}.png")
                run.artifacts([args.output / name for name in files])
