"""Cores, instances and dispatch: how one model uses a machine best.

    python -m experiments.scaling --data ../shared/data/pages
    python -m experiments.scaling --parts threads engines --shapes minilm --lengths 32 512
    python -m experiments.scaling --quick

Tests the claims of Funtowicz, "Scaling up BERT-like model inference on modern CPU, part 1" (Hugging
Face). Each instance is a process of its own, pinned to its cores before anything is imported. What
is compared runs in the same rounds; a barrier starts the instances of a row together. An
interrupted study continues with the groups that are missing.

Parts: ``threads`` (one instance, more and more threads), ``engines`` (all engines with all cores),
``instances`` (a batch of 8 divided among instances, pinned and not), ``copies`` (a second instance
on the other half of the cores), ``dispatch`` (requests of mixed lengths at 50 % and 80 % of the
capacity).
"""

import argparse
import contextlib
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from experiments import Values, command, study, units
from experiments import scaling_dispatch as dispatch
from experiments import scaling_report as report
from experiments.machine import topology
from experiments.scaling_report import COPIES, DISPATCH, ENGINES, INSTANCES, THREADS
from experiments.workloads import ENGINE_PACKAGES, SHAPES, Model, Workload, missing
from nq import processor
from nq.bundle import bundled_sample
from nq.commands import arguments
from nq.formats.input_files import find_files

PARTS = (THREADS, ENGINES, INSTANCES, COPIES, DISPATCH)
LENGTHS = (32, 128, 512)
TOTAL_BATCH = 8
REQUESTS = 60
QUICK: Values = {
    "shapes": ["tiny"],
    "lengths": [32],
    "engines": ["tensorflow"],
    "requests": 20,
}

Instance = tuple[Workload, tuple[int, ...]]
"""What an instance computes, and the cores that it may use."""


@dataclass(frozen=True)
class Variant:
    """One row: instances that compute at the same time, pinned to cores of their own or not."""

    instances: tuple[Instance, ...]
    pinned: bool = True


Group = tuple[Values, list[Variant]]
"""What names rows that are measured in the same rounds, and the rows, the one to compare with
first."""


def load(workload: Workload) -> tuple[list[list[int]], units.Work]:
    """Loads an instance; a command is one step, whose reply is its seconds."""
    step = Model(workload).step()
    return units.thread_cores(), lambda command: units.seconds(step)


def measure(key: Values, variants: Sequence[Variant], rounds: int) -> list[Values]:
    """Measures the rows of a group."""
    pairs: list[tuple[Values, study.Step]] = []
    with contextlib.ExitStack() as stack:
        for variant in variants:
            some, cores = [], []
            for workload, own in variant.instances:
                settings = units.thread_settings(workload.threads)
                some.append(stack.enter_context(units.started(load, workload, own, settings)))
                cores.append(some[-1].receive())  # a conversion takes much memory: one at a time
            first = variant.instances[0][0]
            count = len(variant.instances)
            row = {
                **key,
                "engine": first.engine,
                "instances": count,
                "threads": first.threads,
                "batch": first.batch,
                "pinned": variant.pinned,
                "reference": variant is variants[0],
                "windows": count * first.batch,
                "topology": topology(),
                "cores": cores,
                "seconds": [],
                "latencies": [],
            }
            pairs.append((row, functools.partial(_step, some)))
        return study.timed(pairs, rounds)


def _step(some: Sequence[units.Unit]) -> Values:
    seconds, latencies = units.together(some, True)
    return {"seconds": seconds, "latencies": latencies}


def groups(args: argparse.Namespace, engines: Sequence[str], cores: Sequence[int]) -> list[Group]:
    """Returns the groups of all parts but ``dispatch``."""
    result, n = list[Group](), len(cores)
    threads = [n, *(2**i for i in range(n.bit_length()) if 2**i < n), 2 * n]
    counts = [k for k in (2, 4, 8) if n % k == 0] + [k for k in (2, 4, 8) if k > n][:1]
    instances = [(k, max(1, n // k), TOTAL_BATCH // k, p) for k in counts for p in (True, False)]
    copies = [(k, n // max(2, k)) for k in (1, 2, 4) if n >= max(2, k)]
    for shape, length in itertools.product(args.shapes, args.lengths):
        make = functools.partial(_variant, shape, length, cores)
        every: dict[str, dict[str, list[Variant]]] = {
            THREADS: {e: [make(e, 1, number) for number in threads] for e in engines},
            ENGINES: {"all": [make(e, 1, n) for e in engines]},
            INSTANCES: {
                e: [make(e, 1, n, TOTAL_BATCH), *(make(e, *one) for one in instances)]
                for e in engines
            },
            COPIES: {e: [make(e, *one) for one in copies] for e in engines},
        }
        for part in (part for part in every if part in args.parts):
            for name, variants in every[part].items():
                key = {"part": part, "shape": shape, "length": length, "group": name}
                result += [(key, variants)] if len(variants) > 1 else []
    return result


def _variant(
    shape: str,
    length: int,
    cores: Sequence[int],
    engine: str,
    instances: int,
    threads: int,
    batch: int = 1,
    pinned: bool = True,
) -> Variant:
    """Returns instances with ``threads`` threads each; more threads than cores share all cores."""
    workload = Workload(shape, engine, length, batch, threads)
    disjoint = instances * threads <= len(cores)
    places = units.shares(cores[: instances * threads] if disjoint else cores, instances)
    chosen = [tuple(places[i]) if pinned else tuple(cores) for i in range(instances)]
    return Variant(tuple((workload, place) for place in chosen), pinned)


def _options(parser: argparse.ArgumentParser) -> None:
    arguments.add_data(parser, required=False, note="; default: the bundled sample")
    command.add_list(parser, "parts", PARTS, PARTS)
    command.add_list(parser, "shapes", ("minilm", "base"), SHAPES)
    command.add_list(parser, "lengths", LENGTHS)
    engines = [name for name in ENGINE_PACKAGES if name != "tensorflow-eager"]
    command.add_list(parser, "engines", engines, ENGINE_PACKAGES)
    command.add_option(parser, "requests", REQUESTS, "requests of a round of the part dispatch")
    study.add_options(parser, report.STUDY.name)


def scaling(args: argparse.Namespace) -> int:
    """Runs the command."""
    if args.quick:
        vars(args).update(QUICK)
    files = find_files(args.data or [bundled_sample()])
    engines = study.installed(args.engines, missing)
    cores = processor.cores()
    cells: list[study.Cell] = [
        (key, functools.partial(measure, key, variants, args.rounds))
        for key, variants in groups(args, engines, cores)
    ]
    pairs = [(s, e) for s in args.shapes for e in engines if DISPATCH in args.parts]
    lengths = dispatch.real_lengths(files) if pairs else ()
    for shape, engine in pairs:
        served = dispatch.Dispatch(shape, engine, cores, lengths, args.requests)
        cells.append((served.key, functools.partial(served.rows, args.rounds)))
    return study.measure(
        report.STUDY,
        args,
        lambda _: cells,
        files,
        requests=args.requests,
    )


main = command.main(scaling, _options)
