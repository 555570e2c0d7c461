"""How each operation of a layer is split over devices: the cheapest chain of known ways.

An operation can be split in a few fixed ways, each of which takes its input and gives its output in
one layout. Between two operations whose layouts differ there is a collective. The choice of a way
for each operation is then a path, and the cheapest choice a shortest path: Zheng et al. 2022,
"Alpa", https://arxiv.org/abs/2201.12023, and MindSpore's automatic parallelism do this for graphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nq.config import ModelConfig
from nq.planning.collectives import (
    Link,
    Transfer,
    all_gather,
    all_reduce,
    all_to_all,
    nothing,
    reduce_scatter,
)

WHOLE, WINDOWS, FEATURES, PARTIAL = "whole", "windows", "features", "partial"
"""Layouts: each device has all; its windows; its features of all; a summand of all."""
CONVERSIONS: Mapping[tuple[str, str], Callable[[float, int, Link], Transfer]] = {
    (WHOLE, WINDOWS): nothing,
    (WHOLE, FEATURES): nothing,
    (WINDOWS, WHOLE): all_gather,
    (FEATURES, WHOLE): all_gather,
    (WINDOWS, FEATURES): all_to_all,
    (FEATURES, WINDOWS): all_to_all,
    (PARTIAL, WHOLE): all_reduce,
    (PARTIAL, WINDOWS): reduce_scatter,
    (PARTIAL, FEATURES): reduce_scatter,
}
"""What leads from one layout to another."""


@dataclass(frozen=True)
class Way:
    """One way to split an operation.

    Args:
        name: of the way.
        takes, gives: layouts of its input and its output.
        seconds: that the slowest device computes.
    """

    name: str
    takes: str
    gives: str
    seconds: float


@dataclass(frozen=True)
class Operation:
    """An operation of a chain.

    Args:
        name: of the operation.
        ways: to split it.
        output_bytes: of its whole output.
    """

    name: str
    ways: tuple[Way, ...]
    output_bytes: float


@dataclass(frozen=True)
class Sharding:
    """A way for each operation.

    Args:
        ways: in the order of the operations.
        collectives: names of the collectives, with the operation before which each one is;
            ``end`` for the one after the last operation.
        seconds: of operations and collectives.
        transfer: the collectives alone.
    """

    ways: tuple[str, ...] = ()
    collectives: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    transfer: Transfer = field(default_factory=Transfer)


def convert(
    before: str, after: str, size: float, devices: int, link: Link
) -> tuple[str, Transfer] | None:
    """Returns the collective between two layouts and its cost; ``None`` if there is none.

    Args:
        before, after: the layouts.
        size: bytes of the whole.
        devices: that share it.
        link: between them.

    >>> convert("partial", "whole", 8e9, 2, Link(1e9))
    ('all_reduce', Transfer(seconds=8.0, moved_bytes=16000000000.0))
    """
    if before == after:
        return "nothing", Transfer()
    collective = CONVERSIONS.get((before, after))
    return collective and (collective.__name__, collective(size, devices, link))


def search(
    operations: Sequence[Operation],
    devices: int,
    link: Link,
    layout: str = WHOLE,
    input_bytes: float = 0.0,
) -> Sharding:
    """Returns the fastest sharding of a chain, by the shortest path through its layouts.

    Args:
        operations: one after the other.
        devices: that share each of them.
        link: between them.
        layout: of the chain's input and output.
        input_bytes: of its whole input.
    """
    states, size = {layout: Sharding()}, input_bytes
    for operation in operations:
        following: dict[str, Sharding] = {}
        for before, path in states.items():
            for way in operation.ways:
                new = _extended(path, before, way, operation.name, size, devices, link)
                if new:
                    following[way.gives] = _better(new, following.get(way.gives))
        states, size = following, operation.output_bytes
    end = Way("", layout, layout, 0.0)
    best: Sharding | None = None
    for before, path in states.items():
        new = _extended(path, before, end, "end", size, devices, link)
        best = _better(new, best) if new else best
    assert best, "a collective leads from each layout to each but the summands"
    return best


def _better(new: Sharding, known: Sharding | None) -> Sharding:
    """Returns the faster one; of equally fast ones that with fewer collectives."""
    if known is None:
        return new
    if math.isclose(new.seconds, known.seconds):
        return min(known, new, key=lambda path: len(path.collectives))
    return min(known, new, key=lambda path: path.seconds)


def _extended(
    path: Sharding, before: str, way: Way, name: str, size: float, devices: int, link: Link
) -> Sharding | None:
    """Returns a path with one operation more; ``None`` if no collective leads to it."""
    step = convert(before, way.takes, size, devices, link)
    if step is None:
        return None
    collective, cost = step
    return Sharding(
        (*path.ways, way.name) if way.name else path.ways,
        (*path.collectives, (collective, name)) if collective != "nothing" else path.collectives,
        path.seconds + cost.seconds + way.seconds,
        path.transfer + cost,
    )


def layer_operations(
    config: ModelConfig,
    length: int,
    windows: int,
    devices: int,
    flop_per_s: float,
    value_bytes: int,
    layout: str = WHOLE,
    whole_weights: bool = False,
) -> list[Operation]:
    """Returns the operations of one layer of the encoder, with the ways to split them.

    Y = X W is computed by columns of W, which give columns of Y, or by rows of W and columns of X,
    which give summands of Y: Shoeybi et al. 2019, "Megatron-LM", https://arxiv.org/abs/1909.08053.
    Attention is split by heads. Residual additions with their norms need all features. The input of
    the layer is added to the output of attention, and so on: all norms have one layout, that of the
    layer's input.

    Args:
        config: shape of the encoder.
        length: pieces in a window.
        windows: that are computed together.
        devices: that share the layer.
        flop_per_s: of each device.
        value_bytes: of one activation.
        layout: of the layer's input, its norms and its output: whole, or by windows.
        whole_weights: whether a device may hold all weights of the layer.
    """
    hidden, inner, width = config.hidden_size, config.intermediate_size, config.attention_width
    pieces = windows * length

    def seconds(flop: float) -> float:
        return flop / flop_per_s

    def data(flop: float) -> list[Way]:
        """Returns the split by windows, if they can be divided."""
        own = Way("data", WINDOWS, WINDOWS, seconds(flop / devices))
        return [] if windows % devices else [own]

    def product(name: str, rows: int, columns: int) -> Operation:
        flop = 2 * pieces * rows * columns
        ways = [
            Way("columns", WHOLE, FEATURES, seconds(flop / devices)),
            Way("rows", FEATURES, PARTIAL, seconds(flop / devices)),
        ]
        if whole_weights:
            ways.append(Way("replicate", WHOLE, WHOLE, seconds(flop)))
            ways += data(flop)
        return Operation(name, tuple(ways), pieces * columns * value_bytes)

    flop = 4 * pieces * length * width
    attention = Operation(
        "attention",
        (
            Way("heads", FEATURES, FEATURES, seconds(flop / devices)),
            *data(flop),
            Way("replicate", WHOLE, WHOLE, seconds(flop)),
        ),
        pieces * width * value_bytes,
    )
    norm = Way("norm", layout, layout, 0.0)
    return [
        product("qkv", hidden, 3 * width),
        attention,
        product("attention_output", width, hidden),
        Operation("attention_norm", (norm,), pieces * hidden * value_bytes),
        product("intermediate", hidden, inner),
        product("output", inner, hidden),
        Operation("output_norm", (norm,), pieces * hidden * value_bytes),
    ]
