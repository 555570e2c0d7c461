"""Pipelines: which layers each device computes, and the time of all micro-batches."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Stage:
    """The layers from ``first`` to before ``end``; ``replicas`` devices take batches in turn."""

    first: int
    end: int
    replicas: int = 1


def partition(
    layers: Sequence[float],
    sends: Sequence[float],
    devices: int,
    most_replicas: int,
    fits: Callable[[int, int], bool] = lambda first, end: True,
) -> tuple[Stage, ...] | None:
    """Returns the stages with the smallest bottleneck that use exactly ``devices`` devices.

    This is the dynamic programme of PipeDream (Narayanan et al. 2019,
    https://arxiv.org/abs/1806.03377, section 3.1) for inference: weights are not synchronized
    (W = 0) and activations are sent once (C_i in place of 2 C_i). With T(i→j, m) = sum of
    T_i … T_j / m, the time of layers i to j on m devices,

        A(j, m) = min(T(1→j, m), min over i < j, m' < m of max(A(i, m-m'), C_i, T(i+1→j, m')))

    is the smallest bottleneck of the first j layers on m devices. Time: O(layers² devices²).

    Args:
        layers: T_l, seconds of each layer for one micro-batch.
        sends: C_i, seconds to send the activations after layer i; one less than layers.
        devices: m.
        most_replicas: largest number of replicas of a stage.
        fits: whether the layers from the first to before the second argument fit into the memory
            of one device.

    Returns:
        Two stages or more, because a single one is data parallelism; ``None`` if none fit.

    >>> partition([1.0, 1.0, 4.0], [0.0, 0.0], devices=2, most_replicas=1)
    (Stage(first=0, end=2, replicas=1), Stage(first=2, end=3, replicas=1))
    """
    sums = [0.0, *itertools.accumulate(layers)]
    fits = cache(fits)

    @cache
    def best(end: int, devices: int) -> tuple[float, int, int]:
        """Returns A(end, devices), with the first layer and the replicas of the last stage."""
        choices = [(math.inf, 0, 0)]
        for first in (i for i in range(end) if fits(i, end)):
            for replicas in range(1, min(devices, most_replicas) + 1):
                seconds = (sums[end] - sums[first]) / replicas
                if first == 0 and replicas == devices and end < len(layers):
                    choices.append((seconds, first, replicas))
                elif first > 0 and replicas < devices:
                    before = best(first, devices - replicas)[0]
                    choices.append((max(before, sends[first - 1], seconds), first, replicas))
        return min(choices)

    end = len(layers)
    if math.isinf(best(end, devices)[0]):
        return None
    stages: list[Stage] = []
    while end:  # from the last stage backwards
        _, first, replicas = best(end, devices)
        stages.insert(0, Stage(first, end, replicas))
        end, devices = first, devices - replicas
    return tuple(stages)


def flow_seconds(stations: Sequence[tuple[float, int]], micro_batches: int) -> float:
    """Returns the time until all micro-batches have passed through all stages and links.

    Micro-batch m is ready at station k at t(k, m) = max(t(k-1, m), t(k, m - r_k)) + s_k: it comes
    from the station before, and waits for the server that it shares with every r_k-th micro-batch.
    All micro-batches have the same size. With one server at each station this is the time of GPipe
    (Huang et al. 2019, https://arxiv.org/abs/1811.06965) without its backward pass,
    T = sum s_k + (M-1) max s_k.

    Args:
        stations: s_k, seconds for one micro-batch, and r_k, servers, of each stage or link.
        micro_batches: M.

    >>> flow_seconds([(2.0, 1), (3.0, 1)], micro_batches=4), flow_seconds([(6.0, 3)], 4)
    (14.0, 12.0)
    """
    ready = [0.0] * micro_batches
    for seconds, servers in stations:
        for m in range(micro_batches):
            before = ready[m - servers] if m >= servers else 0.0
            ready[m] = max(ready[m], before) + seconds
    return ready[-1]
