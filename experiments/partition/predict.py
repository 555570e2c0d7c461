"""Predictions of the parts that are measured: the equations of planning with local times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.partition.rows import PIPELINE, TENSOR
from experiments.planning.costs import ALL_REDUCES_PER_LAYER
from experiments.planning.pipeline import flow_seconds
from experiments.workloads import Workload


@dataclass(frozen=True)
class Prediction:
    """What a row is expected to show.

    Args:
        predicted_s: seconds of a step.
        predicted_bubble: share of the devices' time in which they wait.
    """

    predicted_s: float | None = None
    predicted_bubble: float | None = None


def pipeline_seconds(stages: Sequence[float], micro_batches: int) -> float:
    """Returns the time of all micro-batches, each of which passes through all stages."""
    return flow_seconds([(seconds, 1) for seconds in stages], micro_batches)


def pipeline_bubble(stages: Sequence[float], micro_batches: int) -> float:
    """Returns the share of the devices' time in which they wait: 1 - M sum s_k / (K T).

    Args:
        stages: s_k, seconds of each of the K stages for one micro-batch.
        micro_batches: M. With equal stages the bubble is (K-1) / (M+K-1).

    >>> round(pipeline_bubble([1.0, 1.0], micro_batches=8), 3)
    0.111
    """
    total = len(stages) * pipeline_seconds(stages, micro_batches)
    return 1 - micro_batches * sum(stages) / total


def pipeline(stages: Sequence[float], micro_batches: int, latency_s: float) -> Prediction:
    """Returns the prediction of a pipeline.

    Args:
        stages: seconds of each stage for one micro-batch, measured alone.
        micro_batches: M.
        latency_s: of a token from one process to the next, which waits for it.
    """
    waits = (len(stages) - 1) * latency_s
    return Prediction(
        pipeline_seconds(stages, micro_batches) + waits, pipeline_bubble(stages, micro_batches)
    )


def perceptron(
    way: str, parts: Sequence[float], micro_batches: int, latency_s: float
) -> Prediction:
    """Returns the prediction of the perceptron.

    Args:
        way: how it is divided; a process with the whole network is not predicted.
        parts: seconds of a step in each process, measured alone.
        micro_batches: M, of the pipeline.
        latency_s: of a token from one process to the other.
    """
    if way == PIPELINE:
        one = pipeline([s / micro_batches for s in parts], micro_batches, latency_s)
        last = latency_s  # the first process waits for the end of the step
        return Prediction((one.predicted_s or 0.0) + last, one.predicted_bubble)
    if len(parts) == 1:
        return Prediction()
    return Prediction(max(parts) + (latency_s if way == TENSOR else 0.0))


def tensor_s(whole_s: float, devices: int, layers: int, all_reduce_s: float) -> float:
    """Returns the predicted seconds of a model whose layers are divided among devices.

    Args:
        whole_s: seconds of the unsplit model on one device.
        devices: how many.
        layers: of the model.
        all_reduce_s: seconds of one all-reduce of the activations, measured alone.
    """
    return whole_s / devices + ALL_REDUCES_PER_LAYER * layers * all_reduce_s


def tensor_bytes(workload: Workload, devices: int) -> int:
    """Returns the bytes that all all-reduces of one batch move, in float32.

    In a ring of p devices each of them sends 2 (p-1) / p of the activations.
    """
    size = 4 * workload.batch * workload.length * workload.config.hidden_size
    return ALL_REDUCES_PER_LAYER * workload.config.num_hidden_layers * 2 * (devices - 1) * size
