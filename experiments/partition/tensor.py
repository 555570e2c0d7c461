"""BERT-Joint on Keras' JAX backend, on one device or divided among host devices: one process.

JAX reads the number of host devices and the cores when it starts, so each is a unit of its own. One
device computes with all cores that its process may use.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from experiments import Values, units
from experiments.workloads import Workload, rows

STEP = "step"
LOGITS = "logits"
ALL_REDUCE = "all-reduce"
COUNTS = ("all_reduces", "compiled_all_reduces")
REPEATS = 21


@dataclass(frozen=True)
class Task:
    """What a process computes: a batch of a model whose layers are divided among devices."""

    workload: Workload
    devices: int = 1


def environment(devices: int) -> dict[str, str]:
    """Returns the environment in which JAX has ``devices`` host devices."""
    return {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }


def load(task: Task) -> tuple[Values, units.Work]:
    """Loads a model; the commands are ``STEP``, ``LOGITS`` and ``ALL_REDUCE``.

    Returns:
        The sets of cores that its threads may use, and the counts of ``sharding.Program``.
    """
    import numpy as np

    from experiments.partition import sharding
    from nq.model import joint

    workload = task.workload
    inputs = rows(task.workload)
    del inputs["token_map"]
    model = joint.build(workload.config)
    program = sharding.program(workload.config, model, inputs, task.devices)
    del model

    def logits() -> Values:
        return {name: np.asarray(values) for name, values in program.compute(inputs).items()}

    def step() -> float:
        return units.seconds(logits)

    def all_reduce() -> float:
        shape = workload.batch * workload.length, workload.config.hidden_size
        measure = sharding.all_reduce(shape, task.devices)
        return statistics.median(measure() for _ in range(REPEATS))

    run: dict[str, Callable[[], Any]] = {
        STEP: step,
        LOGITS: logits,
        ALL_REDUCE: all_reduce,
    }
    step()
    counts = {name: getattr(program, name) for name in COUNTS}
    return {"cores": units.thread_cores(), **counts}, lambda command: run[command]()
