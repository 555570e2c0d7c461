"""Which layers each device computes: the dynamic programme of PipeDream.

Narayanan et al. 2019, "PipeDream: generalized pipeline parallelism for DNN training",
https://arxiv.org/abs/1806.03377, section 3.1, for inference: weights are not synchronized (W = 0)
and activations are sent once (C_i in place of 2 C_i).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Stage:
    """Neighbouring layers, and the devices that hold all of them.

    Args:
        first: the first layer.
        end: the layer after the last one.
        replicas: devices that take micro-batches in turn.
    """

    first: int
    end: int
    replicas: int = 1


@dataclass(frozen=True)
class Partition:
    """A split of all layers.

    Args:
        stages: in the order of the layers.
        bottleneck_s: seconds between two micro-batches that leave the pipeline.
    """

    stages: tuple[Stage, ...]
    bottleneck_s: float


def always(first: int, end: int) -> bool:
    """Returns that some layers fit."""
    return True


def partition(
    layers: Sequence[float],
    sends: Sequence[float],
    devices: int,
    most_replicas: int | None = None,
    split: bool = False,
    fits: Callable[[int, int], bool] = always,
) -> Partition | None:
    """Returns the split with the smallest bottleneck that uses exactly so many devices.

    With T(i→j, m) = sum of T_i … T_j / m, the time of layers i to j on m devices,

        A(j, m) = min(T(1→j, m), min over i < j, m' < m of max(A(i, m-m'), C_i, T(i+1→j, m')))

    is the smallest bottleneck of the first j layers on m devices. Time: O(layers² devices²).

    Args:
        layers: T_l, seconds of each layer for one micro-batch.
        sends: C_i, seconds to send the activations after layer i; one less than layers.
        devices: m.
        most_replicas: of a stage; by default as many as there are devices.
        split: whether one stage alone, which is data parallel, does not count.
        fits: whether the layers from the first to before the second argument fit into the memory
            of one device.

    Returns:
        The split; among equal ones one with few stages. ``None`` if there is none.

    >>> partition([1.0, 1.0, 4.0], [0.0, 0.0], devices=2, most_replicas=1).stages
    (Stage(first=0, end=2, replicas=1), Stage(first=2, end=3, replicas=1))
    """
    n, sums = len(layers), [0.0, *accumulate(layers)]
    most = min(devices, most_replicas or devices)

    def seconds(first: int, end: int, replicas: int) -> float:
        """Returns T(i→j, m); infinite if the layers do not fit."""
        return (sums[end] - sums[first]) / replicas if fits(first, end) else math.inf

    # best[m][j] is A(j, m); cuts[m][j] has i and m' of its last stage
    best = [[math.inf] * (n + 1) for _ in range(devices + 1)]
    cuts = [[(0, 0)] * (n + 1) for _ in range(devices + 1)]
    for end in range(1, n + 1):
        last = {(i, m): seconds(i, end, m) for i in range(end) for m in range(1, most + 1)}
        for total in range(1, devices + 1):
            if total <= most and not (split and end == n):
                best[total][end], cuts[total][end] = last[0, total], (0, total)
            for i in range(1, end):
                for own in range(1, min(most, total - 1) + 1):
                    value = max(best[total - own][i], sends[i - 1], last[i, own])
                    if value < best[total][end]:
                        best[total][end], cuts[total][end] = value, (i, own)
    if math.isinf(best[devices][n]):
        return None
    return Partition(_stages(cuts, n, devices), best[devices][n])


def _stages(cuts: list[list[tuple[int, int]]], end: int, devices: int) -> tuple[Stage, ...]:
    """Returns the stages that the dynamic programme has chosen, from its last one backwards."""
    stages = []
    while end:
        first, replicas = cuts[devices][end]
        stages.append(Stage(first, end, replicas))
        end, devices = first, devices - replicas
    return tuple(reversed(stages))
