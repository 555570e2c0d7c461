"""Attacks ``nq`` in the ways of this package, and checks what follows.

    python -m experiments.attacks fuzz --mutations 10000 --only "NQ*" html
    python -m experiments.attacks kills --kills 100 --interrupts 500

A mutated record becomes answers or a dead letter. A killed or interrupted run loses nothing.
"""

import argparse
import random
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from experiments import command
from experiments.attacks import Row, fuzz, kills
from experiments.command import markdown
from nq.commands import arguments
from nq.errors import Error
from nq.progress import ProgressBar

GROUPS = {"fuzz": fuzz.rows, "kills": kills.rows}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "groups", nargs="+", choices=GROUPS, metavar="GROUP", help=", ".join(GROUPS)
    )
    parser.add_argument("--only", nargs="+", metavar="GLOB", help="dialects, profiles")
    for name, default, text in (
        ("mutations", 1000, "mutated records of each dialect"),
        ("kills", 40, "runs that are killed"),
        ("interrupts", 60, "runs that are interrupted"),
        ("seed", 1, "of all random choices"),
    ):
        command.add_option(parser, name, default, text, type=arguments.count_from_0)


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
        wrong = [row for _, row in rows if not row.is_right]
        values = [{"group": name, **asdict(row)} for name, row in rows]
        command.show({"rows": values}, args, lambda _: table(rows))
        if not args.json:
            for row in wrong:
                print(f"{row.attack}, {row.target}: {row.text}")
    if wrong:
        raise Error(f"{len(wrong)} of {len(rows)} attacks did not end as expected")
    return 0


def table(rows: Sequence[tuple[str, Row]]) -> str:
    """Returns the attacks as a Markdown table; equal ones are counted."""
    equal = defaultdict[tuple[str, ...], list[Row]](list)
    for name, row in rows:
        equal[name, row.attack, row.target].append(row)
    lines = []
    for key, some in equal.items():
        wrong = sum(not row.is_right for row in some)
        longest_s = max(row.seconds for row in some)
        lines.append((*key, str(len(some)), str(wrong), f"{longest_s:.1f}"))
    return markdown(("group", "attack", "target", "attacks", "wrong", "longest s"), *lines)


main = command.main(run, _options)
