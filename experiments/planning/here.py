"""This machine as a device, measured in a few seconds: its processor, without a GPU."""

import os
import statistics
import timeit
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from experiments import units, workloads
from experiments.planning.costs import Workload
from experiments.planning.devices import HERE, Device, Group, TypeTable
from experiments.planning.models import layer_flop
from nq.model.config import ModelConfig
from nq.model.runtime import thread_environment

PROFILES = {"float32": "grappler", "bfloat16": "mixed+grappler"}
"""The profile that each compute type is measured with."""
LATENCY_US = 50
"""Assumed time until a process on another core goes on after a message."""
PIECES = 4096
"""Pieces of a batch at most; larger ones are as fast on a processor."""
COPIED_BYTES = 1 << 28
"""The speed of memory is that of one core which copies an array of this size."""
VOCABULARY = 1000
"""Pieces of the measured encoder's vocabulary."""
LEAST_LAYERS, MEASURED_FLOP = 2, 100e9
"""In an encoder of few small layers the inputs and outputs take a large share of the time, so that
as many layers are measured as ``MEASURED_FLOP`` allow."""
TIMED_S, LEAST_CALLS = 0.4, 3


def measure(workload: Workload, cores: Sequence[int], count: int | None = None) -> Group:
    """Returns some cores of this machine, whole and in ``count`` equal parts.

    By default each core is a part.

    Raises:
        ValueError: the cores cannot be divided into ``count`` parts.
    """
    count = count or len(cores)
    if len(cores) % count:
        raise ValueError(
            f"{HERE}:{count} divides {len(cores)} cores: expected a divisor of {len(cores)}"
        )
    source = np.ones(COPIED_BYTES // 8)
    target = np.zeros_like(source)
    copying = COPIED_BYTES / median_s(lambda: np.copyto(target, source))
    windows = min(workload.batch, max(1, PIECES // workload.length))
    whole = Device(
        on_cores(workload.config, windows, workload.length, cores),
        sustained=TypeTable(**dict.fromkeys(PROFILES, 1.0)),
        memory_gb=memory_bytes() / 1e9,
        memory_gb_per_s=2 * copying / 1e9,  # a copy reads and writes
        link_gb_per_s=copying / 1e9,
        link_latency_us=LATENCY_US,
        name=HERE,
    )
    if count == 1:
        return Group(whole, 1, whole)
    own = cores[: len(cores) // count]
    part = replace(
        whole,
        name="core" if len(own) == 1 else f"{len(own)} cores",
        tflops=on_cores(workload.config, max(1, windows // count), workload.length, own),
        memory_gb=whole.memory_gb / count,
        memory_gb_per_s=whole.memory_gb_per_s / count,
    )
    return Group(part, count, whole)


def memory_bytes(limit: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Returns the memory of this machine, or the limit of its container from a file."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(total, int(limit.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no container, or "max"
        return total


def on_cores(config: ModelConfig, windows: int, length: int, cores: Sequence[int]) -> TypeTable:
    """Returns the TFLOP/s in the layers of a model, by compute type.

    TensorFlow has one thread on each of the cores, in a process of its own: threads keep the cores
    that a process has when libraries start them.
    """
    task = (config, windows, length)
    environment = thread_environment(len(cores))
    with units.started(_load, task, cores, environment) as unit:
        tflops: TypeTable = unit.receive()
    return tflops


def _load(task: tuple[ModelConfig, int, int]) -> tuple[TypeTable, units.Work]:
    speeds = {kind: encoder_tflops(*task, profile) for kind, profile in PROFILES.items()}
    return TypeTable(**speeds), str


def encoder_tflops(config: ModelConfig, windows: int, length: int, profile: str) -> float:
    """Returns the TFLOP/s of TensorFlow in an encoder with some layers, in this process."""
    flop = windows * layer_flop(config, length)
    layers = min(max(LEAST_LAYERS, int(MEASURED_FLOP / flop)), config.num_hidden_layers)
    groups = min(layers, config.num_hidden_groups)
    few = replace(
        config,
        num_hidden_layers=layers,
        num_hidden_groups=groups,
        vocab_size=VOCABULARY,
    )
    rows = workloads.full_windows(VOCABULARY, windows, length)
    return layers * flop / median_s(workloads.engine_step(few, profile, rows)) / 1e12


def median_s(call: Callable[[], object]) -> float:
    """Returns the median time of a call that is repeated for about ``TIMED_S`` seconds."""
    once = min(timeit.repeat(call, number=1, repeat=2))
    repeat = max(LEAST_CALLS, int(TIMED_S / once))
    return statistics.median(timeit.repeat(call, number=1, repeat=repeat))
