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
from dataclasses import dataclass
from typing import Any

from experiments import units, workloads
from experiments.partition import group as groups
from experiments.partition import stages, tensor
from experiments.partition.group import Bounce, Group
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
from experiments.partition.stages import Alone, Run
from experiments.planning import costs as planning
from experiments.planning import here
from experiments.planning.costs import ALL_REDUCES_PER_LAYER, Costs, send_s
from experiments.planning.devices import Group as Devices
from experiments.planning.pipeline import flow_seconds
from experiments.study import Step, timed
from experiments.workloads import Workload

BOUNCES, ALONE = 200, 5
Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """What the rows of a cell have in common.

    ``stages`` is K, also the number of cores, instances and devices.
    """

    part: str
    workload: Workload
    stages: int

    def row(self, way: str, **values: Any) -> Row:
        """Returns a row without timings."""
        load, layers = self.workload, self.workload.config.num_hidden_layers
        return {
            **{"part": self.part, "shape": load.shape, "length": load.length, "batch": load.batch},
            **{"layers": layers, "task": FORWARD, "way": way},
            **{"k": 1 if way in (ONE, ALL) else self.stages, "m": None},
            **{"cut": "", "predicted_s": None, "predicted_bubble": None, "planned_s": None},
            **{"moved_bytes": 0, "drift": None, "all_reduces": None},
            **{"compiled_all_reduces": None, "cores": []},
            **values,
            **{"seconds": [], "busy_s": []},
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
    cuts, inputs = stages.even_cuts(workload.config, count), workloads.rows(workload)
    cell = Cell(ENCODER, workload, count)
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
            row["planned_s"] = planned_s(plan, machine, way, 1, ())
            pairs.append((row, asked(some.members, Run(1))))
        (share,) = one.ask(Alone(-(-workload.batch // count)))
        pairs[-1][0]["predicted_s"] = share
        latency_s = float(pipeline.ask(Bounce(BOUNCES))[0])
        for m in micro_batches:
            pipeline.ask(Run(m))
            windows = Alone(-(-workload.batch // m))
            alone = [member.ask(windows) for member in pipeline.members]
            row = cell.row(
                PIPELINE,
                **{"m": m, "cut": ", ".join(map(str, cuts)), "cores": pipeline.loaded},
                **predicted(alone, m, latency_s),
                planned_s=planned_s(plan, machine, PIPELINE, m, cuts),
                moved_bytes=stages.moved_bytes(workload, cuts),
                drift=stages.drift(pipeline.arrays, one.arrays),
            )
            pairs.append((row, asked(pipeline.members, Run(m))))
        return timed(pairs, rounds)


def tensor_rows(workload: Workload, cores: Sequence[int], devices: int, rounds: int) -> list[Row]:
    """Measures a BERT-Joint divided among host devices of JAX, and its baselines in JAX.

    If there are fewer cores than devices, devices share them.
    """
    cell = Cell(JAX, workload, devices)
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
        all_reduces = ALL_REDUCES_PER_LAYER * workload.config.num_hidden_layers
        activation_bytes = 4 * workload.batch * workload.length * workload.config.hidden_size
        whole_s = statistics.median(steps[ONE]()["seconds"] for _ in range(ALONE))
        rows[TENSOR] |= {
            "cut": "columns, rows",
            **{name: program[name] for name in tensor.COUNTS},
            "predicted_s": whole_s / devices + all_reduces * each_s,
            # in a ring of p devices each of them sends 2 (p-1) / p of the activations
            "moved_bytes": all_reduces * 2 * (devices - 1) * activation_bytes,
        }
        return timed([(rows[way], steps[way]) for way in running], rounds)
