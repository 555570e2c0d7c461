"""This machine as a device, measured in a few seconds: its processor, without a GPU.

Threads keep the cores that a process has when libraries start them, which some do when they are
imported. So the speed of TensorFlow is measured in a process that first sets its cores; it reads
what to measure from its standard input.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nq import child, processor
from nq.config import ModelConfig
from nq.errors import Error
from nq.inference.profile import Profile
from nq.model.runtime import import_tensorflow, thread_environment
from nq.model.shapes import check_memory, layer_flop
from nq.planning.devices import ENGINE_GB, HERE, Device, Group, Link

PROGRAM = """
import os, sys
os.sched_setaffinity(0, map(int, sys.argv[1:]))
from nq.planning.here import main
sys.exit(main(len(sys.argv) - 1))
"""
PROFILES = {"float32": "grappler", "bfloat16": "mixed+grappler"}
"""The profile that each compute type is measured with."""
LATENCY_S = 5e-5
"""Assumed time until a process on another core goes on after a message."""
PIECES = 4096
"""Pieces of a batch at most; larger ones are as fast on a processor."""
COPIED_BYTES = 1 << 28
"""The speed of memory is that of one core which copies an array of this size."""
VOCABULARY, POSITIONS = 1000, 20
"""Pieces of the measured encoder's vocabulary, and positions that are kept of its output."""
LEAST_LAYERS, MEASURED_FLOP = 2, 100e9
"""In an encoder of few small layers the inputs and outputs take a large share of the time, so that
as many layers are measured as ``MEASURED_FLOP`` allow."""
TIMED_S, LEAST_CALLS = 0.4, 3


def measure(
    config: ModelConfig, count: int | None = None, batch: int = 8, length: int = 512
) -> Group:
    """Returns this machine, whole and in equal parts, each of which runs an instance.

    There are ``count`` parts, by default one for each core; the machine computes ``batch`` windows
    of ``length`` pieces together.
    """
    import numpy as np

    cores = processor.cores()
    count = count or len(cores)
    if len(cores) % count:
        raise ValueError(
            f"{HERE}:{count} divides {len(cores)} cores: expected a divisor of {len(cores)}"
        )
    source = np.ones(COPIED_BYTES // 8)
    target = np.zeros_like(source)
    copying = COPIED_BYTES / median_s(lambda: np.copyto(target, source))
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


def memory_bytes(limit: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Returns the memory of this machine, or the limit of its container from a file."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(total, int(limit.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no container, or "max"
        return total


def on_cores(
    config: ModelConfig, windows: int, length: int, cores: Sequence[int]
) -> Mapping[str, float]:
    """Returns the operations per second in the layers of a model, by compute type.

    TensorFlow has one thread on each of the cores, in a process of its own.
    """
    done = subprocess.run(
        **child.python("-c", PROGRAM, *map(str, cores), **thread_environment(len(cores))),
        input=json.dumps([config.to_dict(), windows, length]),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise Error(f"the speed of this machine cannot be measured: {reason}")
    speeds: dict[str, float] = json.loads(done.stdout)
    return speeds


def main(threads: int) -> int:
    """Prints the speeds with so many threads as a JSON object; returns the exit code."""
    shape, windows, length = json.load(sys.stdin)
    config = ModelConfig.from_dict(shape)
    try:
        import_tensorflow(threads)
        speeds = {kind: encoder_flop_per_s(config, kind, windows, length) for kind in PROFILES}
    except (Error, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(speeds))
    return 0


def encoder_flop_per_s(config: ModelConfig, kind: str, windows: int, length: int) -> float:
    """Returns the speed of TensorFlow in an encoder with some layers, in this process."""
    import numpy as np

    from nq.inference.batches import Shape
    from nq.inference.engine import Computation, Network
    from nq.inference.engines.tensorflow import Engine, device, grappler_options
    from nq.inference.reduction import TopK
    from nq.inference.scorer import COLUMNS
    from nq.model import joint

    if device() != "CPU":
        raise Error("here measures processors: hide the GPU with CUDA_VISIBLE_DEVICES=-1")
    affordable = int(MEASURED_FLOP / (windows * layer_flop(config, length)))
    layers = min(max(LEAST_LAYERS, affordable), config.num_hidden_layers)
    groups = min(layers, config.num_hidden_groups)
    few = replace(config, num_hidden_layers=layers, num_hidden_groups=groups, vocab_size=VOCABULARY)
    check_memory(few)
    profile = Profile.parse(PROFILES[kind])
    network = Network(few, joint.build(few, dtype=profile.policy("CPU")))
    rows = {name: np.ones((windows, length), np.int32) for name in COLUMNS}
    with grappler_options(profile.changes.grappler):
        computation = Computation(network, profile, TopK(POSITIONS, text_only=False))
        step = Engine(computation).compiled(Shape(windows, length))
        seconds = median_s(lambda: step(rows))
    return windows * layers * layer_flop(config, length) / seconds


def median_s(call: Callable[[], object]) -> float:
    """Returns the median time of a call, of all that begin within ``TIMED_S`` seconds."""
    call()
    end, times = time.perf_counter() + TIMED_S, list[float]()
    while len(times) < LEAST_CALLS or time.perf_counter() < end:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)
