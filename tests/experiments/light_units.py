"""Units without a model, so that tests of the studies start their processes in a moment."""

import os
import sys
import time
from typing import Any

from experiments import units
from experiments.compression import measure
from experiments.workloads import Workload


def scaling(workload: Workload) -> tuple[list[list[int]], units.Work]:
    """Stands in for ``experiments.scaling.load``."""
    return units.thread_cores(), lambda command: workload.batch / workload.threads


def dispatch(task: tuple[Workload, tuple[int, ...]]) -> tuple[None, units.Work]:
    """Stands in for ``experiments.scaling_dispatch.load``: a piece takes 10 µs."""

    def work(length: int) -> float:
        assert length in task[1]
        time.sleep(length * 1e-5)
        return length * 1e-5

    return None, work


def environment(names: list[str]) -> tuple[Any, units.Work]:
    """Replies with its environment, its cores, and the heavy libraries that it has imported."""
    heavy = [name for name in ("tensorflow", "openvino", "torch") if name in sys.modules]
    return ({name: os.environ.get(name) for name in names}, units.thread_cores(), heavy), str


def compression(task: measure.Computation) -> tuple[dict[str, Any], units.Work]:
    """Stands in for ``experiments.compression.measure.load``: a window takes 0.1 ms."""
    loaded: dict[str, Any] = {"weights": 10**6, "length": 16, "precision": "float32"}
    loaded["cores"] = units.thread_cores()
    return loaded, lambda command: time.sleep(measure.BATCH_SIZE * 1e-4)
