"""This machine as a device, measured in a few seconds: its processor, without a GPU."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from nq.config import ModelConfig
from nq.errors import Error
from nq.inference.cores import available
from nq.inference.profile import Profile
from nq.model.flops import layer_flop
from nq.model.shapes import check_memory
from nq.planning.collectives import Link
from nq.planning.devices import ENGINE_GB, HERE
from nq.planning.records import Device, Group

PROFILES = {"float32": "grappler", "bfloat16": "mixed+grappler"}
"""The profile that each compute type is measured with."""
VOCABULARY, POSITIONS = 1000, 20
"""Of the encoder that is measured: its pieces, and the positions that are kept."""
LEAST_LAYERS, MEASURED_FLOP = 2, 100e9
"""An encoder of few layers has the time of its inputs and outputs too, so that all layers are
measured where they are small."""
LATENCY_S = 5e-5
"""Assumed time until a process on another core goes on after a message."""
TIMED_S, LEAST_CALLS = 0.4, 3
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
        ValueError: the cores cannot be divided into so many parts, or the layers do not fit.
        Error: TensorFlow is not installed, or uses a GPU.
    """
    cores = len(available())
    count = count or cores
    if cores % count:
        raise ValueError(f"{HERE}:{count} divides {cores} cores: expected a divisor of {cores}")
    copying = copied_bytes_per_s()
    windows = min(batch, max(1, PIECES // length))
    whole = Device(
        name=HERE,
        flop_per_s={k: encoder_flop_per_s(config, k, windows, length) for k in PROFILES},
        memory_bytes=memory_bytes(),
        memory_bytes_per_s=2 * copying,  # a copy reads and writes
        link=Link(copying, LATENCY_S),
        engine_bytes=1e9 * ENGINE_GB,
    )
    if count == 1:
        return Group(whole, 1, whole)
    name = "core" if count == cores else f"{cores // count} cores"
    return Group(replace(whole.divided(count), name=name), count, whole, cores // count)


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
    return size / _median_s(lambda: np.copyto(target, source))


def encoder_flop_per_s(config: ModelConfig, kind: str, windows: int, length: int) -> float:
    """Returns the speed of TensorFlow in an encoder with a few layers of a model.

    Args:
        config: shape of the model.
        kind: compute type; a key of ``PROFILES``.
        windows: of a batch, all of them full.
        length: pieces of a window.

    Raises:
        ValueError: the layers do not fit into the memory.
        Error: TensorFlow is not installed, or uses a GPU.
    """
    from nq.model.runtime import import_tensorflow

    import_tensorflow()
    import numpy as np

    from nq.inference.batches import Shape
    from nq.inference.engine import Computation
    from nq.inference.engines.tensorflow import Engine, device, grappler_options
    from nq.inference.network import Network
    from nq.inference.scorer import COLUMNS
    from nq.inference.top_k import TopK
    from nq.model import joint

    if device() != "CPU":
        raise Error(f"{HERE} measures processors: hide the GPU with CUDA_VISIBLE_DEVICES=-1")
    layers = measured_layers(config, windows, length)
    groups = min(layers, config.num_hidden_groups)
    few = replace(config, num_hidden_layers=layers, num_hidden_groups=groups, vocab_size=VOCABULARY)
    check_memory(few)
    profile = Profile.parse(PROFILES[kind])
    network = Network(few, joint.build(few, dtype=profile.policy("CPU")))
    rows = {name: np.ones((windows, length), np.int32) for name in COLUMNS}
    with grappler_options(profile.changes.grappler):
        computation = Computation(network, profile, TopK(POSITIONS, text_only=False))
        step = Engine(computation).compiled(Shape(windows, length))
        seconds = _median_s(lambda: step(rows))
    return windows * layers * layer_flop(config, length) / seconds


def measured_layers(config: ModelConfig, windows: int, length: int) -> int:
    """Returns how many layers of a model are measured: as many as ``MEASURED_FLOP`` allow.

    Args:
        config: shape of the model.
        windows: of a batch, all of them full.
        length: pieces of a window.
    """
    affordable = int(MEASURED_FLOP / (windows * layer_flop(config, length)))
    return min(max(LEAST_LAYERS, affordable), config.num_hidden_layers)


def _median_s(call: Callable[[], object]) -> float:
    """Returns the median time of a call, of all that begin within ``TIMED_S`` seconds."""
    call()
    return statistics.median(_times(call))


def _times(call: Callable[[], object]) -> Iterator[float]:
    end, calls = time.perf_counter() + TIMED_S, 0
    while calls < LEAST_CALLS or time.perf_counter() < end:
        started = time.perf_counter()
        call()
        yield time.perf_counter() - started
        calls += 1
