"""Measures the parts of ``experiments.partition``: all ways of a cell in the same rounds.

Before the rounds each stage is measured alone; predictions follow from these times and from that of
a token between two processes.
"""

import contextlib
import dataclasses
import statistics
from collections.abc import Sequence

from experiments import units, workloads
from experiments.partition import group as groups
from experiments.partition import predict, stages, tensor
from experiments.partition.group import Bounce, Group
from experiments.partition.rows import (
    ALL,
    ENCODER,
    INSTANCES,
    JAX,
    ONE,
    PIPELINE,
    TENSOR,
    Cell,
    Row,
    asked,
)
from experiments.partition.stages import Alone, Run
from experiments.planning import costs as planning
from experiments.planning import here
from experiments.study import timed
from experiments.workloads import Workload

BOUNCES, ALONE = 200, 5


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
            "cut": "columns, rows",
            **{name: program[name] for name in tensor.COUNTS},
            "predicted_s": predict.tensor_s(whole_s, devices, cell.layers, each_s),
            "moved_bytes": predict.tensor_bytes(workload, devices),
        }
        return timed([(rows[way], steps[way]) for way in running], rounds)
