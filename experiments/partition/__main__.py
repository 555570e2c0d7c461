"""One model over several devices: a pipeline, a tensor split, and the planner.

    python -m experiments.partition
    python -m experiments.partition --parts encoder --shapes minilm --lengths 128
    python -m experiments.partition --quick

Tests the claims of Koloskov, "Distributed inference of deep neural networks" (St Petersburg State
University). Each stage, each instance and each JAX program is a process of its own, pinned to its
cores before anything is imported. What is compared runs in the same rounds. An interrupted study
continues with the cells that are missing.

Parts: ``perceptron`` (the source's network, forward and training), ``encoder`` (a BERT-Joint cut
between layers, activations in shared memory), ``tensor`` (each layer divided among host devices of
JAX), ``planner`` (predictions for up to 16 devices that are not here).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from experiments import study
from experiments.partition import measure, planner, report
from experiments.partition.limits import check_devices, even_cuts
from experiments.partition.rows import ENCODER, JAX, PERCEPTRON, PLANNER, Row
from experiments.workloads import SHAPES, Workload
from nq import extras, storage
from nq.commands import arguments, terminal

PARTS = (PERCEPTRON, ENCODER, JAX, PLANNER)
LENGTHS, MICRO_BATCHES, BATCH, STAGES = (128, 512), (1, 2, 4, 8, 16), 16, 2
QUICK: dict[str, Any] = {"shapes": ["tiny"], "lengths": [16], "micro_batches": [1, 2, 8]}

Cell = tuple[dict[str, Any], Callable[[], list[Row]]]
"""What names a cell in the results, and what measures its rows."""


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.partition",
        description="Splits one model over several pinned processes or devices, and compares the "
        "measured times with predictions, with one core, with all, and with one instance on each. "
        "Windows and weights are random.",
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument(
        "--shapes", nargs="+", choices=SHAPES, default=["minilm", "base"], metavar="S"
    )
    parser.add_argument(
        "--lengths", nargs="+", type=arguments.positive, default=list(LENGTHS), metavar="L"
    )
    parser.add_argument(
        "--batch-size",
        type=arguments.positive,
        default=BATCH,
        metavar="B",
        help=f"windows of a batch (default: {BATCH})",
    )
    parser.add_argument(
        "--stages",
        type=arguments.positive,
        default=STAGES,
        metavar="K",
        help=f"stages of the pipeline, devices of the tensor split, instances (default: {STAGES})",
    )
    parser.add_argument(
        "--micro-batches",
        nargs="+",
        type=arguments.positive,
        default=list(MICRO_BATCHES),
        metavar="M",
        help="numbers of micro-batches (default: 1 2 4 8 16)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="try the command: a tiny model, short windows"
    )
    study.add_options(parser, report.STUDY.name)
    return parser


def check(args: argparse.Namespace) -> None:
    """Checks that the options fit together, before anything is measured.

    Raises:
        ValueError: a model cannot be divided, or a batch has too few windows.
    """
    for shape in args.shapes:
        even_cuts(SHAPES[shape], args.stages)
        if JAX in args.parts:
            check_devices(SHAPES[shape], args.stages)
    most = max(*args.micro_batches, args.stages)
    if args.batch_size < most:
        raise ValueError(
            f"a batch of {args.batch_size} windows cannot be divided into {most} micro-batches: "
            "give a larger --batch-size, or smaller --micro-batches"
        )


def cells(args: argparse.Namespace) -> list[Cell]:
    """Returns the cells of the chosen parts that can be measured here; says which cannot."""
    cores = sorted(os.sched_getaffinity(0))
    found: list[Cell] = []
    workloads = [
        Workload(shape, "tensorflow", length, args.batch_size)
        for shape in args.shapes
        for length in args.lengths
    ]
    if PERCEPTRON in args.parts:
        found.append(({"part": PERCEPTRON}, partial(measure.perceptron_rows, cores, args.rounds)))
    for workload in workloads if ENCODER in args.parts else []:
        rows = partial(
            measure.encoder_rows, workload, cores, args.stages, args.micro_batches, args.rounds
        )
        found.append((_key(ENCODER, workload), rows))
    has_jax = importlib.util.find_spec("jax") is not None
    if JAX in args.parts and not has_jax:
        print(f"nq: {JAX} left out: jax not installed: {extras.install('peers')}", file=sys.stderr)
    for workload in workloads if JAX in args.parts and has_jax else []:
        rows = partial(measure.tensor_rows, workload, cores, args.stages, args.rounds)
        found.append((_key(JAX, workload), rows))
    if PLANNER in args.parts:
        found.append(({"part": PLANNER}, planner.rows))
    return found


def _key(part: str, workload: Workload) -> dict[str, Any]:
    return {"part": part, "shape": workload.shape, "length": workload.length}


def partition(args: argparse.Namespace) -> int:
    """Runs the command."""
    if args.quick:
        vars(args).update(QUICK)
    check(args)
    started = time.time()
    with storage.hold(args.output, report.STUDY.kind, []):
        results = study.Results.of(
            report.STUDY,
            args,
            batch=args.batch_size,
            stages=args.stages,
            micro_batches=args.micro_batches,
        )
        grid = cells(args)
        with terminal.ProgressBar("partition", "cells") as bar:
            for key, rows in grid:
                if results.find(key) is None:
                    results.add(*rows())
                bar(1, len(grid))
        return study.finish(report.STUDY, args, results, started)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(partition, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
