"""One model over several devices: a pipeline, and a tensor split.

    python -m experiments.partition
    python -m experiments.partition --parts encoder --shapes minilm --lengths 128
    python -m experiments.partition --quick

Tests claims of Koloskov, "Distributed inference of deep neural networks" (St Petersburg State
University). Each stage, each instance and each JAX program is a process of its own, pinned to its
cores before anything is imported. What is compared runs in the same rounds. An interrupted study
continues with the cells that are missing.

Parts: ``encoder`` (a BERT-Joint cut between layers, activations in shared memory) and ``tensor``
(each layer divided among host devices of JAX).
"""

import argparse
import itertools
from collections.abc import Callable
from functools import partial

from experiments import Values, command, study
from experiments.partition import measure, report, stages
from experiments.partition.measure import Row
from experiments.partition.report import ENCODER, JAX
from experiments.workloads import SHAPES, Workload
from nq import processor

PARTS = (ENCODER, JAX)
LENGTHS = (128, 512)
MICRO_BATCHES = (1, 2, 4, 8, 16)
BATCH = 16
STAGES = 2
QUICK: Values = {"shapes": ["tiny"], "lengths": [16], "micro_batches": [1, 2, 8]}


def _options(parser: argparse.ArgumentParser) -> None:
    command.add_list(parser, "parts", PARTS, PARTS)
    command.add_list(parser, "shapes", ("minilm", "base"), SHAPES)
    command.add_list(parser, "lengths", LENGTHS)
    command.add_list(parser, "micro-batches", MICRO_BATCHES)
    command.add_option(parser, "batch-size", BATCH, "windows of a batch")
    command.add_option(parser, "stages", STAGES, "stages, devices, and instances")
    study.add_options(parser, report.STUDY.name)


def check(args: argparse.Namespace) -> None:
    """Checks that the options fit together, before anything is measured."""
    for shape in args.shapes:
        stages.even_cuts(SHAPES[shape], args.stages)
        if JAX in args.parts:
            stages.check_devices(SHAPES[shape], args.stages)
    most = max(*args.micro_batches, args.stages)
    if args.batch_size < most:
        raise ValueError(
            f"a batch of {args.batch_size} windows cannot be divided into {most} micro-batches: "
            "give a larger --batch-size, or smaller --micro-batches"
        )


def cells(args: argparse.Namespace) -> list[study.Cell]:
    """Returns the cells of the chosen parts that can be measured here; says which cannot."""
    cores = processor.cores()
    k = args.stages
    m = args.micro_batches
    measures: dict[str, Callable[[Workload], list[Row]]] = {
        ENCODER: lambda workload: measure.encoder_rows(workload, cores, k, m, args.rounds),
        JAX: lambda workload: measure.tensor_rows(workload, cores, k, args.rounds),
    }
    found: list[study.Cell] = []
    some = [part for part in PARTS if part in args.parts]
    for part in study.installed(some, lambda part: command.missing(["jax"] if part == JAX else [])):
        for shape, length in itertools.product(args.shapes, args.lengths):
            workload = Workload(shape, "tensorflow", length, args.batch_size)
            key = {"part": part, "shape": shape, "length": length}
            found.append((key, partial(measures[part], workload)))
    return found


def partition(args: argparse.Namespace) -> int:
    """Runs the command."""
    if args.quick:
        vars(args).update(QUICK)
    check(args)
    settings = {name: getattr(args, name) for name in ("stages", "micro_batches")}
    return study.measure(
        report.STUDY, args, lambda _: cells(args), batch=args.batch_size, **settings
    )


main = command.main(partition, _options)
