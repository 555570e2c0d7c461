"""``nq plan``: predicts a model's speed, memory and cost on devices, whole or split over them."""

from __future__ import annotations

import argparse
import logging

from nq.commands import arguments, terminal
from nq.model.registry import BUNDLED
from nq.text import visible

log = logging.getLogger(__name__)

TYPES = ("float32", "bfloat16", "float16", "int8")
WINDOWS_PER_QUESTION = 103
"""Of whole pages at length 512 and stride 128: docs/benchmarks.md, 20 questions of dev's pages."""


def parser() -> terminal.Parser:
    """Returns the parser of the command."""
    parser = terminal.Parser(
        prog="nq plan",
        description="Predicts how fast a model is on devices, and whether it fits: on one, copied "
        "to all, or split over them as a pipeline, within its layers, or both. Ranks the "
        "possibilities.",
        examples=(
            "nq plan --model bert-large --batch 32 --length 512 --devices v100 v100:8",
            "nq plan --batch 32 --length 512 --devices h100 --type float16 --questions 7830",
            "nq plan --batch 16 --length 256 --devices here",
        ),
    )
    parser.add_argument(
        "--model",
        default=BUNDLED,
        metavar="MODEL",
        help="model folder, name of an installed model, or a shape: bert-base, bert-large, "
        f"rembert (default: {BUNDLED})",
    )
    parser.add_argument(
        "--batch",
        type=arguments.positive,
        required=True,
        metavar="B",
        help="windows that are computed together, by all devices",
    )
    parser.add_argument(
        "--length", type=arguments.positive, required=True, metavar="L", help="pieces of a window"
    )
    parser.add_argument(
        "--devices",
        nargs="+",
        required=True,
        metavar="FILE",
        help="devices to compare: v100, a100, h100, xeon, here (this machine, measured), or a "
        "TOML file; each with :N for N of them",
    )
    parser.add_argument(
        "--type",
        choices=TYPES,
        default=TYPES[0],
        help=f"compute type (default: {TYPES[0]})",
    )
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "--windows",
        type=arguments.positive,
        metavar="N",
        help="windows of the whole task, for hours and cost",
    )
    amount.add_argument(
        "--questions",
        type=arguments.positive,
        metavar="N",
        help="questions of the whole task, in place of --windows",
    )
    parser.add_argument(
        "--windows-per-question",
        type=arguments.positive,
        metavar="N",
        help=f"windows of a question's page (default: {WINDOWS_PER_QUESTION}, whole pages of "
        "Wikipedia at length 512 and stride 128)",
    )
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns 1 if the model fits nowhere."""
    from nq.planning import devices, here, models, strategies, table
    from nq.planning.costs import Workload

    windows, each = args.windows, args.windows_per_question
    if args.questions is not None:
        windows = args.questions * (each or WINDOWS_PER_QUESTION)
    elif each is not None:
        raise terminal.UsageError("--windows-per-question needs --questions")
    workload = Workload(models.find(args.model), args.batch, args.length, args.type, windows)
    rows: dict[strategies.Plan, None] = {}
    for text in args.devices:
        name, count = devices.counted(text)
        if name == devices.HERE:
            log.info("measuring this machine, which takes some seconds")
            groups = [here.measure(workload.config, count, workload.batch, workload.length)]
        else:
            groups = devices.find(text)
        for group in groups:
            rows |= dict.fromkeys(strategies.plans(workload, group))
    ranked = sorted(rows, key=strategies.order)
    if args.json:
        values = table.summary(args.model, workload)
        plans = [table.to_dict(row) for row in ranked]
        values |= {"plans": plans, "conclusion": table.conclusion(workload, ranked)}
        terminal.print_json(values)
    else:
        print(visible(table.table(args.model, workload, ranked), lines=True))
    return 0 if ranked[0].fits else terminal.FAILED
