"""The speed of TensorFlow in an encoder on some cores, measured in a process of its own.

Threads keep the cores that a process has when libraries start them, which some do when they are
imported. So ``on_cores`` starts a process that first sets its cores; it reads what to measure from
its standard input.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from nq.child import python_path
from nq.config import ModelConfig
from nq.errors import Error
from nq.inference.profile import Profile
from nq.model.runtime import import_tensorflow, thread_environment
from nq.model.shapes import check_memory, layer_flop

PROGRAM = """
import os, sys
os.sched_setaffinity(0, map(int, sys.argv[1:]))
from nq.planning.speed import main
sys.exit(main(len(sys.argv) - 1))
"""
PROFILES = {"float32": "grappler", "bfloat16": "mixed+grappler"}
"""The profile that each compute type is measured with."""
VOCABULARY, POSITIONS = 1000, 20
"""Of the encoder that is measured: its pieces, and the positions that are kept."""
LEAST_LAYERS, MEASURED_FLOP = 2, 100e9
"""An encoder of few layers has the time of its inputs and outputs too, so that all layers are
measured where they are small."""
TIMED_S, LEAST_CALLS = 0.4, 3


def on_cores(
    config: ModelConfig, windows: int, length: int, cores: Sequence[int]
) -> Mapping[str, float]:
    """Returns the operations per second in the layers of a model, by compute type.

    Args:
        config: shape of the model.
        windows: of a batch, all of them full.
        length: pieces of a window.
        cores: on which TensorFlow has one thread each.

    Raises:
        Error: TensorFlow is not installed or uses a GPU, or the layers do not fit into the memory.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, *map(str, cores)],  # -P: no module of this folder
        input=json.dumps([config.to_dict(), windows, length]),
        env={**os.environ, **thread_environment(len(cores)), "PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise Error(f"the speed of this machine cannot be measured: {reason}")
    speeds: dict[str, float] = json.loads(done.stdout)
    return speeds


def encoder_flop_per_s(config: ModelConfig, kind: str, windows: int, length: int) -> float:
    """Returns the speed of TensorFlow in an encoder with some layers of a model, in this process.

    Args:
        config: shape of the model.
        kind: compute type; a key of ``PROFILES``.
        windows: of a batch, all of them full.
        length: pieces of a window.

    Raises:
        ValueError: the layers do not fit into the memory.
        Error: TensorFlow is not installed, or uses a GPU.
    """
    import numpy as np

    from nq.inference.batches import Shape
    from nq.inference.engine import Computation
    from nq.inference.engines.tensorflow import Engine, device, grappler_options
    from nq.inference.network import Network
    from nq.inference.scorer import COLUMNS
    from nq.inference.top_k import TopK
    from nq.model import joint

    if device() != "CPU":
        raise Error("here measures processors: hide the GPU with CUDA_VISIBLE_DEVICES=-1")
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
        seconds = median_s(lambda: step(rows))
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


def median_s(call: Callable[[], object]) -> float:
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
