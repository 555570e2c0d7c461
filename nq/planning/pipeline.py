"""The time of a pipeline: stages on devices of their own, through which micro-batches pass.

Huang et al. 2019, "GPipe", https://arxiv.org/abs/1811.06965, here without a backward pass. All
micro-batches have the same size, and so a stage takes the same time for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nq.planning.costs import send
from nq.planning.devices import Link


@dataclass(frozen=True)
class Station:
    """A stage or a link, whose servers take micro-batches in turn, ``seconds`` for each."""

    seconds: float
    servers: int = 1


def pipeline_seconds(stages: Sequence[float], micro_batches: int) -> float:
    """Returns the time of all micro-batches: T = sum s_k + (M-1) max s_k.

    The first micro-batch passes through all stages; the others leave the slowest stage one after
    the other.

    >>> pipeline_seconds([2.0, 3.0], micro_batches=4)
    14.0
    """
    return sum(stages) + (micro_batches - 1) * max(stages)


def flow_seconds(stations: Sequence[Station], micro_batches: int) -> float:
    """Returns the time of all micro-batches where some stations have several servers.

    Micro-batch m is ready at station k at t(k, m) = max(t(k-1, m), t(k, m - r_k)) + s_k: it comes
    from the station before, and waits for the server that it shares with every r_k-th micro-batch.
    With one server at each station this is ``pipeline_seconds``.

    >>> flow_seconds([Station(6.0, servers=3)], micro_batches=4)
    12.0
    """
    ready = [0.0] * micro_batches
    for station in stations:
        for m in range(micro_batches):
            before = ready[m - station.servers] if m >= station.servers else 0.0
            ready[m] = max(ready[m], before) + station.seconds
    return ready[-1]


def predicted_seconds(
    layers: Sequence[float],
    cuts: Sequence[int],
    micro_batches: int,
    activation_bytes: float,
    link: Link,
    overlap: bool = False,
) -> float:
    """Returns the time of a batch in a pipeline, from measured times of its layers.

    Args:
        layers: seconds of each layer for one micro-batch, measured on one device.
        cuts: the layers before which a stage begins, without the first one, ascending.
        micro_batches: number of micro-batches in the batch.
        activation_bytes: bytes that one micro-batch sends at each cut.
        link: measured link between two stages.
        overlap: whether a device computes while it sends. Otherwise a stage takes the time of its
            layers and of its sending, as where the sender copies into shared memory itself.

    >>> predicted_seconds([1.0, 1.0, 1.0], [2], 4, activation_bytes=5e8, link=Link(1e9))
    11.0
    """
    ends = [*cuts, len(layers)]
    stages = [sum(layers[first:end]) for first, end in zip([0, *cuts], ends, strict=True)]
    sending = send(activation_bytes, link).seconds
    if overlap:
        between = [sending] * len(cuts)
        return pipeline_seconds([*stages, *between], micro_batches)
    return pipeline_seconds([*(s + sending for s in stages[:-1]), stages[-1]], micro_batches)
