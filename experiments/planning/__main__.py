"""Predicts a model's speed, memory and cost on devices, whole or split over them.

    python -m experiments.planning --batch 32 --length 512 --devices v100 v100:8 --model bert-large
    python -m experiments.planning --batch 32 --length 512 --devices h100 --questions 7830
    python -m experiments.planning --batch 16 --length 256 --devices here

``here`` is this machine, which is measured first.
"""

import argparse
import sys

from experiments import command
from experiments.planning import devices, here, models, strategies, table
from experiments.planning.costs import Workload
from nq import processor
from nq.commands import terminal
from nq.model.registry import BUNDLED
from nq.text import visible

WINDOWS_PER_QUESTION = 103
"""Of whole pages at length 512 and stride 128: docs/benchmarks.md, 20 questions of dev's pages."""


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument(
        "--model",
        default=BUNDLED,
        help=f"model folder, name of an installed model, or a shape: {', '.join(models.SHAPES)} "
        f"(default: {BUNDLED})",
    )
    text = "windows that are computed together, by all devices"
    command.add_option(parser, "batch", None, text, required=True)
    command.add_option(parser, "length", None, "pieces of a window", required=True)
    parser.add_argument(
        "--devices",
        nargs="+",
        required=True,
        metavar="FILE",
        help="devices to compare: v100, a100, h100, xeon, here (this machine, measured), or a "
        "TOML file; each with :N for N of them",
    )
    text = "compute type (default: float32)"
    parser.add_argument("--type", choices=devices.VALUE_BYTES, default="float32", help=text)
    amount = parser.add_mutually_exclusive_group()
    command.add_option(amount, "windows", None, "windows of the whole task, for hours and cost")
    text = "questions of the whole task, in place of --windows"
    command.add_option(amount, "questions", None, text)
    text = "windows of a question's page; whole ones of Wikipedia at length 512 and stride 128"
    command.add_option(parser, "windows-per-question", WINDOWS_PER_QUESTION, text)


def planning(args: argparse.Namespace) -> int:
    """Runs the command; returns 1 if the model fits nowhere."""
    windows = args.questions * args.windows_per_question if args.questions else args.windows
    workload = Workload(models.find(args.model), args.batch, args.length, args.type, windows)
    plans: dict[strategies.Plan, None] = {}  # a device alone may be part of several groups
    for text in args.devices:
        name, count = devices.counted(text)
        if name == devices.HERE:
            print("nq: measuring this machine, which takes some seconds", file=sys.stderr)
            groups = [here.measure(workload, processor.cores(), count)]
        else:
            groups = devices.find(name, count)
        for group in groups:
            plans |= dict.fromkeys(strategies.plans(workload, group))
    ranked = sorted(plans, key=strategies.order)
    if args.json:
        terminal.print_json(table.to_dict(args.model, workload, ranked))
    else:
        print(visible(table.table(args.model, workload, ranked), lines=True))
    return 0 if ranked[0].fits else terminal.FAILED


main = command.main(planning, options)


if __name__ == "__main__":
    raise SystemExit(main())
