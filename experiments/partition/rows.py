"""The rows of ``experiments.partition``, and how they are timed.

A *way* is what is compared: one core, all cores, one instance on each core, a pipeline, a tensor
split. "All cores" are as many as the pipeline has stages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.intervals import rotated
from experiments.partition.group import Group

PERCEPTRON, ENCODER, JAX, PLANNER = "perceptron", "encoder", "tensor", "planner"
ONE, ALL, INSTANCES = "one core", "all cores", "instances"
PIPELINE, TENSOR = "pipeline", "tensor"
FORWARD, TRAINING = "forward", "training"

Row = dict[str, Any]
Step = Callable[[], tuple[float, float]]
"""Computes a row once; returns its seconds, and those of all its processes without waiting."""


@dataclass(frozen=True)
class Cell:
    """What the rows of a cell have in common.

    Args:
        part: of the study.
        shape: of the model.
        length: pieces of a window.
        batch: windows, or rows of the perceptron.
        stages: K, also the number of cores, instances and devices.
        layers: of the model.
    """

    part: str
    shape: str
    length: int
    batch: int
    stages: int
    layers: int

    def row(self, way: str, **values: Any) -> Row:
        """Returns a row without timings."""
        processes = {ONE: 1, ALL: 1}.get(way, self.stages)
        return {
            **{"part": self.part, "shape": self.shape, "length": self.length, "batch": self.batch},
            **{"layers": self.layers, "task": FORWARD, "way": way, "k": processes, "m": None},
            **{"cut": "", "predicted_s": None, "predicted_bubble": None, "planned_s": None},
            **{"moved_bytes": 0, "drift": None, "all_reduces": None},
            **{"compiled_all_reduces": None, "cores": []},
            **values,
            **{"seconds": [], "busy_s": []},
        }


def timed(pairs: Sequence[tuple[Row, Step]], rounds: int) -> list[Row]:
    """Measures rows in rotating order; returns them with their timings."""
    for number in range(rounds):
        for row, step in rotated(pairs, number):
            seconds, busy_s = step()
            row["seconds"].append(seconds)
            row["busy_s"].append(busy_s)
    return [row for row, _ in pairs]


def asked(group: Group, command: Any, count: int = 1) -> Step:
    """Returns the step that sends a command of ``count`` steps to all processes of a group."""

    def step() -> tuple[float, float]:
        started = time.perf_counter()
        busy_s = sum(group.ask(command))
        return (time.perf_counter() - started) / count, busy_s / count

    return step
