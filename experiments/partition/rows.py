"""The rows of ``experiments.partition``, and how they are timed.

A *way* is what is compared: one core, all cores, one instance on each core, a pipeline, a tensor
split. "All cores" are as many as the pipeline has stages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments import units
from experiments.study import Step

PERCEPTRON, ENCODER, JAX = "perceptron", "encoder", "tensor"
ONE, ALL, INSTANCES = "one core", "all cores", "instances"
PIPELINE, TENSOR = "pipeline", "tensor"
FORWARD, TRAINING = "forward", "training"

Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """What the rows of a cell have in common.

    ``stages`` is K, also the number of cores, instances and devices.
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


def asked(members: Sequence[units.Unit], command: Any) -> Step:
    """Returns the step that sends a command to several processes.

    Their replies are seconds without waiting for each other.
    """

    def step() -> dict[str, float]:
        seconds, busy_s = units.together(members, command)
        return {"seconds": seconds, "busy_s": sum(busy_s)}

    return step
