"""Measures the parts of ``experiments.partition``: all ways of a cell in the same rounds.

A *way* is what is compared: one core, all cores, one instance on each core, a pipeline, a tensor
split. "All cores" are as many as the pipeline has stages.

Before the rounds each stage is measured alone; predictions follow from these times and from that of
a token between two processes.
"""

import contextlib
import dataclasses
import math
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from experiments import Values, units, workloads
from experiments.partition import group as groups
from experiments.partition import stages, tensor
from experiments.partition.group import Group
from experiments.partition.report import (
    ALL,
    ENCODER,
    FORWARD,
    INSTANCES,
    JAX,
    ONE,
    PIPELINE,
    TENSOR,
)
from experiments.planning import costs as planning
from experiments.planning import here
from experiments.planning.costs import ALL_REDUCES_PER_LAYER, Costs, send_s
from experiments.planning.devices import Group as Devices
from experiments.planning.pipeline import flow_seconds
from experiments.study import Step, timed
from experiments.workloads import Workload

BOUNCES, ALONE = 200, 5
Row = Values


def new_row(part: str, workload: Workload, stages: int, way: str, **values: Any) -> Row:
    """Returns a row without timings; ``stages`` is also the number of instances and devices."""
    return {
        "part": part,
        "shape": workload.shape,
        "length": workload.length,
        "batch": workload.batch,
        "layers": workload.config.num_hidden_layers,
        "task": FORWARD,
        "way": way,
        "k": 1 if way in (ONE, ALL) else stages,
        "cut": "",
        "moved_bytes": 0,
        **dict.fromkeys(("m", "predicted_s", "predicted_bubble", "planned_s", "drift")),
        **dict.fromkeys(tensor.COUNTS),
        **values,
        "seconds": [],
        "busy_s": [],
    }


def asked(members: Sequence[units.Unit], command: Any) -> Step:
    """Returns the step that sends a command to several processes.

    Their replies are seconds without waiting for each other.
    """

    def step() -> dict[str, float]:
        seconds, busy_s = units.together(members, command)
        return {"seconds": seconds, "busy_s": sum(busy_s)}

    return step


def predicted(stages: Sequence[float], micro_batches: int, latency_s: float) -> dict[str, float]:
    """Returns the seconds of a step of a pipeline, and the share of them in which devices wait.

    The equations are those of ``experiments.planning``, with times of the model itself. The share,
    the bubble, is 1 - M sum s_k / (K T).

    Args:
        stages: s_k, seconds of each of the K stages for one micro-batch, measured alone.
        micro_batches: M. With equal stages the bubble is (K-1) / (M+K-1).
        latency_s: of a token from one process to the next, which waits for it.

    >>> round(predicted([1.0, 1.0], micro_batches=8, latency_s=0.0)["predicted_bubble"], 3)
    0.111
    """
    seconds = flow_seconds([(seconds, 1) for seconds in stages], micro_batches)
    bubble = 1 - micro_batches * sum(stages) / (len(stages) * seconds)
    waits_s = (len(stages) - 1) * latency_s
    return {"predicted_s": seconds + waits_s, "predicted_bubble": bubble}


def planned_s(
    plan: planning.Workload, group: Devices, way: str, micro_batches: int, cuts: Sequence[int]
) -> float:
    """Returns the seconds that the planner expects of a batch on devices that were measured.

    Each of the cores is a device of ``group``, and all of them are one. A pipeline has
    micro-batches and the layers before which the model is cut.
    """
    shared = group.count if way == INSTANCES else micro_batches
    windows = math.ceil(plan.batch / shared)
    device = group.whole if way == ALL else group.device
    parts = Costs(plan, device, windows).seconds  # the embeddings are the first part
    sending = send_s(plan.activation_bytes(windows), device)
    ends = [*(cut + 1 for cut in cuts), len(parts)]
    stages = [sum(parts[first:end]) for first, end in zip([0, *ends], ends, strict=False)]
    # The sender copies into shared memory itself, so that it does not compute meanwhile.
    stations = [*((stage + sending, 1) for stage in stages[:-1]), (stages[-1], 1)]
    return flow_seconds(stations, micro_batches)


def encoder_rows(
    workload: Workload, cores: Sequence[int], count: int, micro_batches: Sequence[int], rounds: int
) -> list[Row]:
    """Measures a BERT-Joint cut into ``count`` stages, and its baselines.

    If there are fewer cores than stages, stages share them.
    """
    cuts = stages.even_cuts(workload.config, count)
    inputs = workloads.rows(workload)
    cell = partial(new_row, ENCODER, workload, count)
    plan = planning.Workload(workload.config, workload.batch, workload.length)
    machine = here.measure(plan, cores[:count])
    each = units.shares(cores[:count], count)
    with contextlib.ExitStack() as stack:

        def start(places: Sequence[Sequence[int]], cuts: tuple[int, ...] = ()) -> Group:
            task = stages.Task(dataclasses.replace(workload, threads=len(places[0])), cuts)
            shapes = stages.shapes(workload, cuts)
            running = stack.enter_context(groups.started(stages.load, task, places, shapes))
            stages.fill(running.arrays, inputs)
            return running

        one = start(each[:1])
        baselines = {ONE: one, ALL: start([cores[:count]]), INSTANCES: start(each)}
        pipeline = start(each, cuts)
        pairs = []
        for way, some in baselines.items():
            some.ask("run", 1)
            drift = None if some is one else stages.drift(some.arrays, one.arrays)
            planned = planned_s(plan, machine, way, 1, ())
            row = cell(way, cores=some.loaded, drift=drift, planned_s=planned)
            pairs.append((row, asked(some.members, ("run", 1))))
        (row["predicted_s"],) = one.ask("alone", -(-workload.batch // count))
        latency_s, *_ = pipeline.ask("bounce", BOUNCES)
        for m in micro_batches:
            pipeline.ask("run", m)
            windows = -(-workload.batch // m)
            alone = [member.ask(("alone", windows)) for member in pipeline.members]
            row = cell(
                PIPELINE,
                m=m,
                cut=", ".join(map(str, cuts)),
                cores=pipeline.loaded,
                **predicted(alone, m, latency_s),
                planned_s=planned_s(plan, machine, PIPELINE, m, cuts),
                moved_bytes=plan.activation_bytes(workload.batch) * len(cuts),
                drift=stages.drift(pipeline.arrays, one.arrays),
            )
            pairs.append((row, asked(pipeline.members, ("run", m))))
        return timed(pairs, rounds)


def tensor_rows(workload: Workload, cores: Sequence[int], devices: int, rounds: int) -> list[Row]:
    """Measures a BERT-Joint divided among host devices of JAX, and its baselines in JAX.

    If there are fewer cores than devices, devices share them.
    """
    batch = workload.batch
    config = workload.config
    own = cores[:devices]
    each = units.shares(own, devices)
    with contextlib.ExitStack() as stack:

        def start(places: Sequence[int], batch: int, count: int = 1) -> units.Unit:
            task = tensor.Task(dataclasses.replace(workload, batch=batch), count)
            settings = tensor.environment(count)
            return stack.enter_context(units.started(tensor.load, task, places, settings))

        one = start(each[0], batch)
        whole = start(own, batch)
        split = start(own, batch, devices)
        sizes = [part.stop - part.start for part in groups.slices(0, batch, devices)]
        instances = [start(*pair) for pair in zip(each, sizes, strict=False)]
        running = {ONE: [one], ALL: [whole], INSTANCES: instances, TENSOR: [split]}
        loaded = {way: [unit.receive() for unit in some] for way, some in running.items()}
        cell = partial(new_row, JAX, workload, devices)
        rows = {way: cell(way, cores=[x["cores"] for x in loaded[way]]) for way in running}
        logits = one.ask(tensor.LOGITS)
        rows[ALL]["drift"] = stages.drift(whole.ask(tensor.LOGITS), logits)
        rows[TENSOR]["drift"] = stages.drift(split.ask(tensor.LOGITS), logits)
        steps = {way: asked(some, tensor.STEP) for way, some in running.items()}
        all_reduces = ALL_REDUCES_PER_LAYER * config.num_hidden_layers
        activation_bytes = 4 * batch * workload.length * config.hidden_size
        whole_s = statistics.median(steps[ONE]()["seconds"] for _ in range(ALONE))
        (program,) = loaded[TENSOR]
        rows[TENSOR] |= {
            "cut": "columns, rows",
            **{name: program[name] for name in tensor.COUNTS},
            "predicted_s": whole_s / devices + all_reduces * split.ask(tensor.ALL_REDUCE),
            # in a ring of p devices each of them sends 2 (p-1) / p of the activations
            "moved_bytes": all_reduces * 2 * (devices - 1) * activation_bytes,
        }
        return timed([(rows[way], steps[way]) for way in running], rounds)
