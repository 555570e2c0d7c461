"""Processes that the tests of ``experiments.partition`` start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import units
from nq.records import IntArray
from tests import tiny_models

Inputs = Mapping[str, IntArray]


def jax_logits(task: tuple[Inputs, int]) -> tuple[Any, units.Work]:
    """Fills the tiny model on this backend; the commands are numbers of devices."""
    import keras
    import numpy as np

    from experiments.partition import sharding

    inputs, _ = task
    model = tiny_models.model()

    def run(devices: int) -> Any:
        program = sharding.program(tiny_models.SHAPE, model, inputs, devices)
        logits = {name: np.asarray(values) for name, values in program.compute(inputs).items()}
        return logits, program.all_reduces

    return keras.config.backend(), run
