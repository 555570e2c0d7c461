"""Predicts a model's speed, memory and cost on devices, whole or split over them.

    python -m experiments.planning --batch 32 --length 512 --devices v100 v100:8 --model bert-large
    python -m experiments.planning --batch 32 --length 512 --devices h100 --questions 7830
    python -m experiments.planning --batch 16 --length 256 --devices here

``here`` is this machine, which is measured first.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict

from experiments import Values, command
from experiments.planning import devices, here, models, strategies
from experiments.planning.costs import Workload
from experiments.planning.models import count_weights, window_gflop
from experiments.planning.strategies import DATA, SINGLE, Plan
from nq import processor
from nq.bundle import READER
from nq.commands import terminal
from nq.text import counted, grid, visible

WINDOWS_PER_QUESTION = 103
"""Of whole pages at length 512 and stride 128: docs/benchmarks.md, 20 questions of dev's pages."""
HEAD = (
    "strategy",
    "devices",
    "split",
    "micro-batches",
    "GB each",
    "s/batch",
    "windows/s",
    "waiting",
    "MB moved",
    "hours",
    "dollars",
)
PREDICTED = "Predicted from the figures of the devices, not measured."


def table(model: str, workload: Workload, plans: Sequence[Plan]) -> str:
    """Returns the plans that fit as a table, the reasons why others do not, and the conclusion."""
    config = workload.config
    total = f", {workload.windows:,} windows" if workload.windows else ""
    lines = [
        f"{model}: {config.num_hidden_layers} layers, {count_weights(config) / 1e6:.0f} M weights, "
        f"{window_gflop(config, workload.length):.1f} GFLOP a window",
        f"batches of {counted(workload.batch, 'window')} of {workload.length} pieces in "
        f"{workload.compute_type}{total}",
        "",
    ]
    possible = [plan for plan in plans if plan.fits]
    if possible:
        lines += [*grid(HEAD, [_row(plan) for plan in possible]), ""]
    left_out: dict[tuple[str, str], list[str]] = {}
    for plan in plans:
        if plan.reason:
            left_out.setdefault((plan.group, plan.reason), []).append(plan.strategy)
    lines += [
        f"not on {group}: {', '.join(names)} ({reason})"
        for (group, reason), names in left_out.items()
    ]
    return "\n".join([*lines, conclusion(workload, plans), PREDICTED])


def _row(plan: Plan) -> tuple[str, ...]:
    return (
        plan.strategy,
        plan.group,
        split(plan),
        str(plan.micro_batches),
        f"{plan.memory_bytes / 1e9:.1f}",
        f"{plan.batch_s:.3g}",
        f"{plan.windows_per_s:.4g}",
        f"{plan.bubble:.0%}",
        f"{plan.moved_bytes / 1e6:,.0f}",
        "-" if plan.hours is None else f"{plan.hours:.3g}",
        "-" if plan.cost is None else f"{plan.cost:.2f}",
    )


def split(plan: Plan) -> str:
    """Returns the split of a plan in words: layers in t parts, s stages with their replicas.

    >>> from experiments.planning.pipeline import Stage
    >>> split(Plan(tensor=2, stages=(Stage(0, 3), Stage(3, 6))))
    '2 parts, 2 stages'
    >>> split(Plan(stages=(Stage(0, 3, 3), Stage(3, 6, 1)))), split(Plan(stages=(Stage(0, 6),)))
    ('stages of 3+1', '-')
    """
    replicas = [stage.replicas for stage in plan.stages]
    words = [f"{plan.tensor} parts"] if plan.tensor > 1 else []
    if len(replicas) == 1 and replicas[0] > 1:
        words.append(f"{replicas[0]} copies")
    elif max(replicas) > 1:
        words.append(f"stages of {'+'.join(map(str, replicas))}")
    elif len(replicas) > 1:
        words.append(f"{len(replicas)} stages")
    return ", ".join(words) or "-"


def conclusion(workload: Workload, plans: Sequence[Plan]) -> str:
    """Returns which of the sorted plans to choose, and why."""
    best = plans[0]
    if not best.fits:
        return "The model fits nowhere: add devices or memory, or choose a smaller model or batch."
    first = f"{best.strategy[0].upper()}{best.strategy[1:]} on {best.group} is the fastest"
    if best.strategy in (SINGLE, DATA):
        return f"{first}: split only a model that does not fit on one device."
    if any(plan.fits and plan.strategy in (SINGLE, DATA) for plan in plans):
        return (
            f"{first} for batches of {counted(workload.batch, 'window')}, although the model fits "
            "on one device: with larger batches copies of the whole model win."
        )
    return f"{first} of what fits: no device holds the whole model."


def to_dict(model: str, workload: Workload, plans: Sequence[Plan]) -> Values:
    """Returns what is computed, the plans and the conclusion as JSON values."""
    return {
        "model": model,
        **asdict(workload),
        "weights": count_weights(workload.config),
        "gflop_per_window": window_gflop(workload.config, workload.length),
        "plans": [
            asdict(plan) | {"fits": plan.fits, "batch_s": plan.batch_s if plan.stages else None}
            for plan in plans
        ],
        "conclusion": conclusion(workload, plans),
    }


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        default=READER,
        help=f"folder or name of one model, or a shape: {', '.join(models.SHAPES)} "
        f"(default: {READER})",
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
    parser.add_argument(
        "--type",
        choices=devices.VALUE_BYTES,
        default="float32",
        help=text,
    )
    amount = parser.add_mutually_exclusive_group()
    command.add_option(amount, "windows", None, "windows of the whole task, for hours and cost")
    text = "questions of the whole task, in place of --windows"
    command.add_option(amount, "questions", None, text)
    text = "windows of a question's page; whole ones of Wikipedia at length 512 and stride 128"
    command.add_option(parser, "windows-per-question", WINDOWS_PER_QUESTION, text)


def planning(args: argparse.Namespace) -> int:
    """Runs the command; returns 1 if the model fits nowhere."""
    windows = args.questions * args.windows_per_question if args.questions else args.windows
    workload = Workload(
        models.find(args.model),
        args.batch,
        args.length,
        args.type,
        windows,
    )
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
        terminal.print_json(to_dict(args.model, workload, ranked))
    else:
        print(visible(table(args.model, workload, ranked), lines=True))
    return 0 if ranked[0].fits else terminal.FAILED


main = command.main(planning, _options)
