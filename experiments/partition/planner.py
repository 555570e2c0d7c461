"""What planning predicts: for the rows measured here, and for devices that are not here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from experiments.partition.rows import ALL, INSTANCES, PLANNER, Cell, Row
from experiments.planning import devices, models, strategies
from experiments.planning.costs import Costs, Workload, send_s
from experiments.planning.devices import Group
from experiments.planning.pipeline import flow_seconds
from experiments.planning.strategies import Plan

SHAPES, DEVICE, COUNTS = ("bert-large", "rembert"), "v100", (1, 2, 4, 8, 16)
BATCH, LENGTH = 64, 512


def planned_s(
    plan: Workload, group: Group, way: str, micro_batches: int, cuts: Sequence[int]
) -> float:
    """Returns the seconds that the planner expects of a batch on devices that were measured.

    Args:
        plan: shape, length and batch.
        group: the cores, each one a device, and all of them as one.
        way: how the batch is computed.
        micro_batches: M, of a pipeline.
        cuts: the layers before which the model is cut; none but for a pipeline.
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


def rows(counts: Sequence[int] = COUNTS) -> list[Row]:
    """Returns a row for each strategy on each number of GPUs; none has a measured time."""
    device = devices.load(devices.KNOWN)[DEVICE]
    return [
        _row(shape, plan)
        for shape in SHAPES
        for count in counts
        for plan in strategies.plans(
            Workload(models.SHAPES[shape], BATCH, LENGTH), Group(device, count, device)
        )
        if plan.fits and (plan.devices == count)
    ]


def _row(shape: str, plan: Plan) -> Row:
    layers = models.SHAPES[shape].num_hidden_layers
    cell = Cell(PLANNER, shape, LENGTH, BATCH, plan.devices, layers)
    values: dict[str, Any] = {
        **{"m": plan.micro_batches, "cut": _cut(plan), "planned_s": plan.batch_s},
        **{"predicted_bubble": plan.bubble, "moved_bytes": plan.moved_bytes},
    }
    return cell.row(f"{plan.strategy}, {plan.group}", **values)


def _cut(plan: Plan) -> str:
    """Returns the parts of the model before which it is cut, and the replicas of the stages."""
    cuts = ", ".join(str(stage.first) for stage in plan.stages[1:])
    replicas = [stage.replicas for stage in plan.stages]
    if len(replicas) > 1 and max(replicas) > 1:
        cuts += f" (x {', '.join(map(str, replicas))})"
    return cuts
