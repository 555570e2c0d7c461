"""The values of a plan: devices, what they compute, and what is predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from nq.config import ModelConfig
from nq.errors import check_argument, is_count
from nq.model.shapes import check_length
from nq.planning.collectives import Link
from nq.planning.partition import Stage

VALUE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
"""Compute types, with the bytes of a value."""
WEIGHT_BYTES = {"float32": 4, "bfloat16": 6, "float16": 6, "int8": 5}
"""Bytes of a weight: profiles keep weights in float32, and compute with copies of the type."""
MAX_LAYERS, MAX_DEVICES = 256, 64
"""The programme for partitions takes seconds for so many."""
MAX_WINDOWS = 10**15


def _check_count(name: str, value: object, most: int) -> None:
    fits = isinstance(value, int) and is_count(value) and value <= most
    check_argument(fits, name, value, f"a whole number from 1 to {most}")


@dataclass(frozen=True)
class Device:
    """One device.

    Args:
        name: of its type.
        flop_per_s: operations per second that it sustains in an encoder, by compute type.
        memory_bytes: of its memory.
        memory_bytes_per_s: that its memory can be read with.
        link: to the next device.
        engine_bytes: of its memory that TensorFlow, or another engine, takes itself.
        price_per_hour: in dollars; ``None`` if it is not known.
    """

    name: str
    flop_per_s: Mapping[str, float]
    memory_bytes: float
    memory_bytes_per_s: float
    link: Link
    engine_bytes: float
    price_per_hour: float | None = None

    def divided(self, parts: int) -> Device:
        """Returns one of several equal parts of the device, such as a core of a processor.

        Each part runs an engine of its own.
        """
        price = self.price_per_hour
        return replace(
            self,
            flop_per_s={name: value / parts for name, value in self.flop_per_s.items()},
            memory_bytes=self.memory_bytes / parts,
            memory_bytes_per_s=self.memory_bytes_per_s / parts,
            price_per_hour=price and price / parts,
        )


@dataclass(frozen=True)
class Group:
    """Equal devices that may share a model.

    Args:
        device: each of them.
        count: how many there are.
        whole: what a model runs on that is not split; for parts of one machine all of it.
        threads: of the processor that each has, if they are parts of this machine.
    """

    device: Device
    count: int
    whole: Device
    threads: int | None = None

    @property
    def name(self) -> str:
        """The group in words, such as "8 x v100"."""
        return f"{self.count} x {self.device.name}"


@dataclass(frozen=True)
class Workload:
    """What is to be computed.

    Args:
        config: shape of the encoder.
        batch: windows that enter together, over all devices.
        length: pieces of a window.
        compute_type: a key of ``VALUE_BYTES``.
        windows: of all batches; ``None`` if it does not matter.

    Raises:
        ValueError: a number is out of range, or the model has fewer positions.
    """

    config: ModelConfig
    batch: int
    length: int
    compute_type: str = "float32"
    windows: int | None = None

    def __post_init__(self) -> None:
        _check_count("batch", self.batch, MAX_WINDOWS)
        _check_count("length", self.length, MAX_WINDOWS)
        if self.windows is not None:
            _check_count("windows", self.windows, MAX_WINDOWS)
        _check_count("num_hidden_layers", self.config.num_hidden_layers, MAX_LAYERS)
        kind, known = self.compute_type, VALUE_BYTES
        check_argument(kind in known, "compute_type", kind, f"one of {', '.join(known)}")
        check_length(self.config, self.length)

    @property
    def value_bytes(self) -> int:
        """Bytes of an activation."""
        return VALUE_BYTES[self.compute_type]

    def activation_bytes(self, windows: int) -> float:
        """Returns the bytes between two layers, of so many windows."""
        return windows * self.length * self.config.hidden_size * self.value_bytes


@dataclass(frozen=True)
class Plan:
    """A strategy on a group of devices, and what is predicted for it.

    Args:
        strategy: its name.
        group: name of the devices.
        reason: why it is not possible; empty if it is.
        devices: that it uses.
        tensor: devices that share each layer.
        stages: of the pipeline; a data parallel one has one stage with several replicas.
        micro_batches: into which a batch is cut.
        memory_bytes: of the fullest device.
        batch_s: seconds for a batch.
        bubble: share of the devices' time in which they wait for others.
        moved_bytes: between devices, for a batch.
        windows_per_s: speed.
        hours, cost: for all windows, in dollars; ``None`` if they are not known.
        command: that computes so on this machine; empty on others.
    """

    strategy: str = ""
    group: str = ""
    reason: str = ""
    devices: int = 1
    tensor: int = 1
    stages: tuple[Stage, ...] = ()
    micro_batches: int = 1
    memory_bytes: float = 0.0
    batch_s: float = math.inf
    bubble: float = 0.0
    moved_bytes: float = 0.0
    windows_per_s: float = 0.0
    hours: float | None = None
    cost: float | None = None
    command: str = ""

    @property
    def fits(self) -> bool:
        """Whether it is possible."""
        return not self.reason
