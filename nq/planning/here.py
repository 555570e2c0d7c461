"""This machine as a device, measured in a few seconds: its processor, without a GPU."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from nq.config import ModelConfig
from nq.inference.cores import available
from nq.planning.collectives import Link
from nq.planning.devices import ENGINE_GB, HERE
from nq.planning.records import Device, Group
from nq.planning.speed import median_s, on_cores

LATENCY_S = 5e-5
"""Assumed time until a process on another core goes on after a message."""
PIECES = 4096
"""Of a batch at most; larger ones are as fast on a processor."""
COPIED_BYTES = 1 << 28
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def measure(
    config: ModelConfig, count: int | None = None, batch: int = 8, length: int = 512
) -> Group:
    """Returns this machine, whole and in equal parts, each of which runs an instance.

    Args:
        config: of the model.
        count: number of the parts; by default that of the cores.
        batch: windows that the machine computes together.
        length: pieces of a window.

    Raises:
        ValueError: the cores cannot be divided into so many parts.
        Error: TensorFlow is not installed, or uses a GPU, or the layers do not fit into memory.
    """
    cores = available()
    count = count or len(cores)
    if len(cores) % count:
        raise ValueError(
            f"{HERE}:{count} divides {len(cores)} cores: expected a divisor of {len(cores)}"
        )
    copying = copied_bytes_per_s()
    windows = min(batch, max(1, PIECES // length))
    whole = Device(
        name=HERE,
        flop_per_s=on_cores(config, windows, length, cores),
        memory_bytes=memory_bytes(),
        memory_bytes_per_s=2 * copying,  # a copy reads and writes
        link=Link(copying, LATENCY_S),
        engine_bytes=1e9 * ENGINE_GB,
    )
    if count == 1:
        return Group(whole, 1, whole)
    own = cores[: len(cores) // count]
    part = replace(
        whole.divided(count),
        name="core" if len(own) == 1 else f"{len(own)} cores",
        flop_per_s=on_cores(config, max(1, windows // count), length, own),
    )
    return Group(part, count, whole, len(own))


def memory_bytes(limit: Path = CGROUP_LIMIT) -> int:
    """Returns the memory of this machine, or what its container may take of it.

    Args:
        limit: file with the limit of the container.
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(total, int(limit.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no container, or "max"
        return total


def copied_bytes_per_s(size: int = COPIED_BYTES) -> float:
    """Returns the speed of copying a large array in memory, by one core.

    Args:
        size: bytes of the array.
    """
    import numpy as np

    source = np.ones(size // 8)
    target = np.zeros_like(source)
    return size / median_s(lambda: np.copyto(target, source))
