"""Predictions of the parts that are measured.

The equations are those of ``experiments.planning``: of the measured parts with times of the model
itself, and as the planner has them, from a measurement of the machine.
"""

import math
from collections.abc import Sequence

from experiments import workloads
from experiments.partition.rows import ALL, INSTANCES
from experiments.planning.costs import ALL_REDUCES_PER_LAYER, Costs, Workload, send_s
from experiments.planning.devices import Group
from experiments.planning.pipeline import flow_seconds

Prediction = dict[str, float]
"""The fields ``predicted_s``, the seconds of a step, and ``predicted_bubble``, the share of the
devices' time in which they wait."""


def pipeline(stages: Sequence[float], micro_batches: int, latency_s: float) -> Prediction:
    """Returns the prediction of a pipeline; its bubble is 1 - M sum s_k / (K T).

    Args:
        stages: s_k, seconds of each of the K stages for one micro-batch, measured alone.
        micro_batches: M. With equal stages the bubble is (K-1) / (M+K-1).
        latency_s: of a token from one process to the next, which waits for it.

    >>> round(pipeline([1.0, 1.0], micro_batches=8, latency_s=0.0)["predicted_bubble"], 3)
    0.111
    """
    seconds = flow_seconds([(seconds, 1) for seconds in stages], micro_batches)
    bubble = 1 - micro_batches * sum(stages) / (len(stages) * seconds)
    waits_s = (len(stages) - 1) * latency_s
    return {"predicted_s": seconds + waits_s, "predicted_bubble": bubble}


def tensor_s(whole_s: float, devices: int, layers: int, all_reduce_s: float) -> float:
    """Returns the predicted seconds of a model whose layers are divided among devices.

    ``whole_s`` are the seconds of the unsplit model on one device, ``all_reduce_s`` those of one
    all-reduce of the activations, measured alone.
    """
    return whole_s / devices + ALL_REDUCES_PER_LAYER * layers * all_reduce_s


def tensor_bytes(workload: workloads.Workload, devices: int) -> int:
    """Returns the bytes that all all-reduces of one batch move, in float32.

    In a ring of p devices each of them sends 2 (p-1) / p of the activations.
    """
    size = 4 * workload.batch * workload.length * workload.config.hidden_size
    return ALL_REDUCES_PER_LAYER * workload.config.num_hidden_layers * 2 * (devices - 1) * size


def planned_s(
    plan: Workload, group: Group, way: str, micro_batches: int, cuts: Sequence[int]
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
