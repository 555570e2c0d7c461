"""What a corpus costs on 1 to 512 workers.

    python -m experiments.scale --data ../shared/data/pages/nq-pages.jsonl.gz

Measures each stage of ``nq answer --runner`` for one example, on one core of this machine, and
predicts hours and dollars for NQ's development set, its training set and a Wikipedia.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from experiments import units
from experiments.scale import measure, report
from nq.commands import arguments, terminal
from nq.formats.input_files import find_files
from nq.model.folder import check_model, load_settings
from nq.model.registry import model_folder

DOLLARS_PER_HOUR = 0.085
"""Of a core: 4.08 dollars for the 48 cores of a c5.metal of AWS, as in ``experiments/planning``."""


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.scale",
        description="Measures what each stage of a job takes for one example on one core, and "
        "predicts hours and dollars of larger corpora on more workers.",
    )
    parser.add_argument("--data", nargs="+", required=True, metavar="FILE", help="questions")
    arguments.add_model(parser)
    parser.add_argument(
        "--profile",
        type=arguments.profile,
        default="buckets+openvino",
        metavar="P",
        help="optimizations (default: buckets+openvino)",
    )
    parser.add_argument("--batch-size", type=arguments.positive, default=16, metavar="B")
    parser.add_argument("--limit", type=arguments.positive, metavar="N", help="examples at most")
    parser.add_argument(
        "--dollars-per-hour",
        type=float,
        default=DOLLARS_PER_HOUR,
        metavar="X",
        help=f"of one core (default: {DOLLARS_PER_HOUR})",
    )
    arguments.add_common(parser)
    return parser


def scale(args: argparse.Namespace) -> int:
    """Runs the command."""
    folder, files = model_folder(args.model), tuple(find_files(args.data))
    check_model(folder, load_settings(folder).windows)
    task = measure.Task(
        files,
        folder,
        str(args.profile),
        args.batch_size,
        args.limit,
    )
    core = sorted(os.sched_getaffinity(0))[:1]
    with units.started(measure.load, task, core, units.thread_settings(1)) as unit:
        found = unit.receive()
    result = {"profile": task.profile, "dollars_per_hour": args.dollars_per_hour, **found}
    if args.json:
        terminal.print_json(result)
    else:
        print(report.table(result), end="")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(scale, parser(), argv)


if __name__ == "__main__":
    sys.exit(main())
