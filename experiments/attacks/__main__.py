"""Attacks ``nq`` in every way of the tables of this package, and checks what follows.

    python -m experiments.attacks models requests fuzz
    python -m experiments.attacks finished weights --model FOLDER --flips 20
    python -m experiments.attacks records --only "48 overlapping*"
    python -m experiments.attacks kills --kills 100 --interrupts 500

Expected is the same result as without the attack where it can be had, and otherwise exit code 1
with one line of error, within the limits of time and memory.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from experiments import command
from experiments.attacks import fuzz, kills, models, records, requests, runs
from experiments.attacks.frame import Group, Row
from experiments.text_tables import markdown
from nq.commands import arguments, terminal
from nq.errors import Error
from nq.progress import ProgressBar

GROUPS: dict[str, Group] = {
    "records": records.rows,
    "models": models.rows,
    **{name: partial(runs.rows, name) for name in runs.SCENARIOS},
    "requests": requests.rows,
    "fuzz": fuzz.rows,
    "kills": kills.rows,
}


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument(
        "groups", nargs="+", choices=GROUPS, metavar="GROUP", help=", ".join(GROUPS)
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="GLOB",
        help="records, kinds, dialects, profiles, 'FILE DAMAGE'",
    )
    arguments.add_model(parser)
    parser.add_argument("--commands", nargs="+", choices=models.COMMANDS, metavar="COMMAND")
    for name, default, text in (
        ("models", 100, "changed model folders"),
        ("flips", 1, "flipped bits of a file, one at a time"),
        ("limit", 3, "questions of a run whose files are damaged"),
        ("requests", 1000, "requests"),
        ("limit-s", 300, "seconds of a process at most"),
        ("mutations", 1000, "mutated records of each dialect"),
        ("kills", 40, "runs that are killed"),
        ("interrupts", 60, "runs that are interrupted"),
        ("seed", 1, "of all random choices"),
    ):
        command.add_option(parser, name, default, text, type=arguments.count_from_0)
    parser.set_defaults(commands=list(models.COMMANDS))


def run(args: argparse.Namespace) -> int:
    """Runs the command; an interruption prints what has been done so far."""
    rows: list[tuple[str, Row]] = []
    try:
        with ProgressBar("attack", "attacks") as bar:
            for name in args.groups:
                with tempfile.TemporaryDirectory(prefix="nq-attacks-") as folder:
                    for row in GROUPS[name](args, Path(folder), random.Random(args.seed)):
                        rows.append((name, row))
                        bar(1, len(rows))
    finally:
        wrong = [row for _, row in rows if row.verdict not in row.expected]
        if args.json:
            terminal.print_json({"rows": [{"group": name, **asdict(row)} for name, row in rows]})
        else:
            print(table(rows), end="")
            for row in wrong:
                print(f"{row.attack}, {row.target}: {row.verdict}: {row.text}")
    if wrong:
        raise Error(f"{len(wrong)} of {len(rows)} attacks did not end as expected")
    return 0


def table(rows: Sequence[tuple[str, Row]]) -> str:
    """Returns the attacks as a Markdown table; equal ones are counted."""
    equal: dict[tuple[str, ...], list[Row]] = {}
    for name, row in rows:
        equal.setdefault((name, row.attack, row.target), []).append(row)
    lines = [
        (
            *key,
            ", ".join(f"{n} {verdict}" for verdict, n in Counter(r.verdict for r in some).items()),
            f"{max(row.seconds for row in some):.1f}",
            f"{max(row.peak_mib for row in some):.0f}",
        )
        for key, some in equal.items()
    ]
    return markdown(("group", "attack", "target", "verdicts", "longest s", "peak MiB"), *lines)


main = command.main(run, options)

if __name__ == "__main__":
    raise SystemExit(main())
