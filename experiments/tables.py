"""Writes the tables of README.md, docs/ and some other pages from their sources.

    python -m experiments.tables            # rewrites every table that is out of date
    python -m experiments.tables --check    # exits with 1 if a file or a result is out of date
    python -m experiments.tables --record compare_20 -- nq compare … --json
    python -m experiments.tables --show scaling_cpu         # prints all rows of a study

A table is between ``<!-- table: NAME -->`` and ``<!-- end -->``. NAME is a table of the code or a
result file (``experiments.table_sources``). ``--record`` runs a command that prints one JSON object
on stdout and writes such a file:

    {"command": "nq compare …", "date": "2026-11-22",
     "machine": "2 cores of …", "versions": {"keras": "3.15.0", …}, "result": {…},
     "model": {"weights": "db2d…+855c…", "settings": "19ab…"}}

``model`` has the SHA-256 of the weights of the bundled models and of their settings, where the
result depends on them. A result whose digests are not those of the models that ship is stale:
``--check`` names it, and the command that measures it again.
"""

import argparse
import datetime
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from experiments import command, machine
from experiments.table_sources import (
    KEYS,
    KINDS,
    MODEL,
    RESULTS,
    SOURCES,
    kind_of,
    read_result,
    shipped,
    stale,
    study,
)
from nq.commands import terminal
from nq.errors import Error

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def _options(parser: argparse.ArgumentParser) -> None:
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if any is out of date"
    )
    action.add_argument(
        "--record",
        metavar="NAME",
        help=f"run the command after -- and write {RESULTS}/NAME.json; NAME begins with "
        + ", ".join(KINDS),
    )
    action.add_argument(
        "--show",
        metavar="NAME",
        help="print the rows of the result of a study",
    )


def tables(args: argparse.Namespace, measuring: Sequence[str]) -> int:
    """Runs the command and returns its exit code; ``measuring`` is the one to record."""
    if bool(measuring) != bool(args.record):
        raise terminal.UsageError("give --record NAME and the COMMAND to run together, after --")
    if args.show:
        result = read_result(args.show, ROOT)["result"]
        print(study(kind_of(args.show)).table(result["rows"]), end="")
        return 0
    if args.record:
        changed = [str(record(args.record, measuring, ROOT))]
    else:
        changed = update(ROOT, write=not args.check)
    label = "out of date" if args.check else "written"
    old = stale(ROOT) if args.check else []
    if args.json:
        values = {label: changed}
        if args.check:
            values["stale"] = old
        terminal.print_json(values)
    else:
        lines = [f"{label}: {', '.join(changed)}"] if changed else []
        print(*(lines + old or ["all tables are up to date"]), sep="\n")
    return terminal.FAILED if args.check and (changed or old) else 0


def update(root: Path, write: bool) -> list[str]:
    """Replaces every table below the folder ``root`` that differs from its source, or writes none.

    Returns the paths, relative to ``root``, of the files that differ. An ``Error`` says that a
    marker names an unknown table, or that a result file is missing or malformed.
    """
    changed = []
    pages = ("README.md", "docs/*.md", "experiments/README.md", "nq/bundled/**/README.md")
    for path in chain.from_iterable(sorted(root.glob(name)) for name in pages):
        text = path.read_text(encoding="utf-8")
        name = str(path.relative_to(root))
        if text.count("<!-- table:") != len(BLOCK.findall(text)):
            raise Error(
                f"{name}: a marker of a table is incomplete; expected '<!-- table: NAME -->' and "
                "'<!-- end -->', each on a line of its own"
            )
        updated = BLOCK.sub(lambda match: f"{match[1]}{table(match[2], root)}{match[4]}", text)
        if updated != text:
            changed.append(name)
            if write:
                path.write_text(updated, encoding="utf-8")
    return changed


def table(name: str, root: Path) -> str:
    """Returns the Markdown of a table, with the origin of its figures below if it is a result."""
    if name in SOURCES:
        return SOURCES[name](root)
    data = read_result(name, root)
    installed = ", ".join(f"{package} {version}" for package, version in data["versions"].items())
    return (
        f"{KINDS[kind_of(name)](data['result'])}\n"
        f"Measured on {data['date']} with {data['machine']} ({installed}):\n\n"
        f"```\n{data['command']}\n```\n"
    )


def record(name: str, command: Sequence[str], root: Path) -> Path:
    """Runs a command and writes the JSON object that it prints, with its origin, as a result.

    Returns the path of the result file. An ``Error`` says that the command fails, or prints
    something else or a result of another kind.
    """
    kind = kind_of(name)
    model = shipped(name, shlex.join(command))
    date = datetime.date.today().isoformat()
    executable = sys.executable if command[0].startswith("python") else command[0]
    process = subprocess.run(
        [executable, *command[1:]],
        stdout=subprocess.PIPE,
        check=False,
    )
    if process.returncode:
        raise Error(f"{shlex.join(command)} failed with exit code {process.returncode}")
    try:
        result = json.loads(process.stdout)
        KINDS[kind](result)
        result.pop("page", None)  # a path on the machine that measured
    except (ValueError, KeyError, TypeError) as error:
        raise Error(
            f"{shlex.join(command)} printed no result of the kind {kind!r} "
            f"({type(error).__name__}: {error}); add --json, or choose another NAME"
        ) from error
    path = root / RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    measured_on = machine.describe()
    origin = (machine.in_words(measured_on), measured_on["versions"])
    values = (shlex.join(command), date, *origin, result)
    recorded = dict(zip(KEYS, values, strict=True)) | ({MODEL: model} if model else {})
    text = json.dumps(recorded, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; what follows ``--`` is another one with options of its own."""
    given = list(sys.argv[1:] if argv is None else argv)
    end = given.index("--") if "--" in given else len(given)
    return command.called(lambda args: tables(args, given[end + 1 :]), _options)(given[:end])


if __name__ == "__main__":
    raise SystemExit(main())
