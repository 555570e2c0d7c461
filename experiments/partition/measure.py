"""Measures the parts of ``experiments.partition``: all ways of a cell in the same rounds.

Before the rounds each stage is measured alone; predictions follow from these times and from that of
a token between two processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Sequence

import numpy as np

from experiments import units, workloads
from experiments.partition import group as groups
from experiments.partition import perceptron, perceptron_ways, predict, stages, tensor
from experiments.partition.group import Bounce, Group
from experiments.partition.perceptron_ways import Steps
from experiments.partition.rows import (
    ALL,
    ENCODER,
    FORWARD,
    INSTANCES,
    JAX,
    ONE,
    PERCEPTRON,
    PIPELINE,
    TENSOR,
    TRAINING,
    Cell,
    Row,
    asked,
)
from experiments.partition.stages import Alone, Run
from experiments.planning import costs as planning
from experiments.planning import here
from experiments.study import Step, timed
from experiments.workloads import Workload

BOUNCES, WARM_STEPS, STEPS, ALONE = 200, 3, 50, 5
PERCEPTRON_MICRO_BATCHES = (1, 2, 4, 8)
CUTS = {PIPELINE: "1", TENSOR: "columns, rows"}


def perceptron_rows(cores: Sequence[int], rounds: int) -> list[Row]:
    """Measures the source's perceptron on two cores, forward and training."""
    with contextlib.ExitStack() as stack:

        def start(way: str, places: Sequence[Sequence[int]]) -> Group:
            tasks, shapes = [way] * len(places), perceptron_ways.shapes()
            context = groups.started(perceptron_ways.load, tasks, places, shapes)
            running = stack.enter_context(context)
            perceptron_ways.fill(running.arrays)
            return running

        each = units.shares(cores[:2], 2)
        running = {
            ONE: start(INSTANCES, each[:1]),
            ALL: start(INSTANCES, [cores[:2]]),
            INSTANCES: start(INSTANCES, each),
            PIPELINE: start(PIPELINE, each),
            TENSOR: start(TENSOR, each),
        }
        pairs = [pair for kind in (FORWARD, TRAINING) for pair in _perceptron(running, kind)]
        return timed(pairs, rounds)


def _perceptron(running: dict[str, Group], kind: str) -> list[tuple[Row, Step]]:
    """Returns the rows of a kind of steps."""
    sizes = "-".join(map(str, perceptron.SIZES))
    cell = Cell(PERCEPTRON, sizes, 0, perceptron.BATCH, 2, len(perceptron.SIZES) - 1)
    logits = {way: _logits_after(some, kind) for way, some in running.items()}
    latency_s = _latency_s(running[TENSOR])
    pairs = []
    for way, some in running.items():
        for m in PERCEPTRON_MICRO_BATCHES if way == PIPELINE else (1,):
            prediction = predict.perceptron(way, _parts_s(some, kind, m), m, latency_s)
            row = cell.row(
                way,
                **{"task": kind, "m": m if way == PIPELINE else None, "cut": CUTS.get(way, "")},
                **prediction,
                moved_bytes=perceptron_ways.moved_bytes(way, kind),
                drift=None if way == ONE else float(np.abs(logits[way] - logits[ONE]).max()),
                cores=some.loaded,
            )
            pairs.append((row, asked(some.members, Steps(kind, STEPS, m), STEPS)))
    return pairs


def _parts_s(some: Group, kind: str, micro_batches: int) -> list[float]:
    """Returns the seconds of a step in each process of the perceptron, while the others wait."""
    command = Steps(kind, STEPS, micro_batches, alone=True)
    return [
        statistics.median(member.ask(command) for _ in range(ALONE)) / STEPS
        for member in some.members
    ]


def _logits_after(some: Group, kind: str) -> groups.Array:
    """Returns the logits of the perceptron after some steps."""
    some.ask(Steps(kind, WARM_STEPS, micro_batches=4))
    some.ask(Steps(FORWARD, 1))
    return some.arrays["logits"].copy()


def _latency_s(some: Group) -> float:
    return float(some.ask(Bounce(BOUNCES))[0])


def encoder_rows(
    workload: Workload, cores: Sequence[int], count: int, micro_batches: Sequence[int], rounds: int
) -> list[Row]:
    """Measures a BERT-Joint cut into ``count`` stages, and its baselines.

    If there are fewer cores than stages, stages share them.
    """
    cuts, inputs = stages.even_cuts(workload.config, count), workloads.rows(workload)
    cell = _cell(ENCODER, workload, count)
    plan = planning.Workload(workload.config, workload.batch, workload.length)
    machine = here.measure(plan, cores[:count])
    with contextlib.ExitStack() as stack:

        def start(cuts: tuple[int, ...], places: Sequence[Sequence[int]]) -> Group:
            task = stages.Task(dataclasses.replace(workload, threads=len(places[0])), cuts)
            shapes = stages.shapes(workload, cuts)
            context = groups.started(stages.load, [task] * len(places), places, shapes)
            running = stack.enter_context(context)
            stages.fill(running.arrays, inputs)
            return running

        each = units.shares(cores[:count], count)
        baselines = {
            ONE: start((), each[:1]),
            ALL: start((), [cores[:count]]),
            INSTANCES: start((), each),
        }
        one, pipeline = baselines[ONE], start(cuts, each)
        pairs = []
        for way, some in baselines.items():
            some.ask(Run(1))
            drift = None if some is one else stages.drift(some.arrays, one.arrays)
            row = cell.row(way, cores=some.loaded, drift=drift)
            row["planned_s"] = predict.planned_s(plan, machine, way, 1, ())
            pairs.append((row, asked(some.members, Run(1))))
        (share,) = one.ask(Alone(-(-workload.batch // count)))
        pairs[-1][0]["predicted_s"] = share
        latency_s = _latency_s(pipeline)
        for m in micro_batches:
            pipeline.ask(Run(m))
            windows = Alone(-(-workload.batch // m))
            alone = [member.ask(windows) for member in pipeline.members]
            row = cell.row(
                PIPELINE,
                **{"m": m, "cut": ", ".join(map(str, cuts)), "cores": pipeline.loaded},
                **predict.pipeline(alone, m, latency_s),
                planned_s=predict.planned_s(plan, machine, PIPELINE, m, cuts),
                moved_bytes=stages.moved_bytes(workload, cuts),
                drift=stages.drift(pipeline.arrays, one.arrays),
            )
            pairs.append((row, asked(pipeline.members, Run(m))))
        return timed(pairs, rounds)


def _cell(part: str, workload: Workload, count: int) -> Cell:
    layers = workload.config.num_hidden_layers
    return Cell(part, workload.shape, workload.length, workload.batch, count, layers)


def tensor_rows(workload: Workload, cores: Sequence[int], devices: int, rounds: int) -> list[Row]:
    """Measures a BERT-Joint divided among host devices of JAX, and its baselines in JAX.

    If there are fewer cores than devices, devices share them.
    """
    cell = _cell(JAX, workload, devices)
    with contextlib.ExitStack() as stack:

        def start(places: Sequence[int], batch: int, count: int = 1) -> units.Unit:
            task = tensor.Task(dataclasses.replace(workload, batch=batch), count)
            settings = tensor.environment(count)
            return stack.enter_context(units.started(tensor.load, task, places, settings))

        batch, each = workload.batch, units.shares(cores[:devices], devices)
        sizes = [part.stop - part.start for part in groups.slices(0, batch, devices)]
        running = {
            ONE: [start(each[0], batch)],
            ALL: [start(cores[:devices], batch)],
            INSTANCES: [start(own, n) for own, n in zip(each, sizes, strict=False)],
            TENSOR: [start(cores[:devices], batch, devices)],
        }
        loaded = {way: [unit.receive() for unit in some] for way, some in running.items()}
        (one,), (split,), (program,) = running[ONE], running[TENSOR], loaded[TENSOR]
        rows = {way: cell.row(way, cores=[x["cores"] for x in loaded[way]]) for way in running}
        for way in (ALL, TENSOR):
            logits = running[way][0].ask(tensor.LOGITS)
            rows[way]["drift"] = stages.drift(logits, one.ask(tensor.LOGITS))
        steps = {way: asked(some, tensor.STEP) for way, some in running.items()}
        each_s = split.ask(tensor.ALL_REDUCE)
        whole_s = statistics.median(steps[ONE]()["seconds"] for _ in range(ALONE))
        rows[TENSOR] |= {
            "cut": CUTS[TENSOR],
            **{name: program[name] for name in tensor.COUNTS},
            "predicted_s": predict.tensor_s(whole_s, devices, cell.layers, each_s),
            "moved_bytes": predict.tensor_bytes(workload, devices),
        }
        return timed([(rows[way], steps[way]) for way in running], rounds)
