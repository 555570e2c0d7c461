"""Processes that the tests of ``experiments.partition`` start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import units
from experiments.partition.group import Seat, work
from nq.records import IntArray
from tests import tiny_models

Inputs = Mapping[str, IntArray]


def chain(seat: Seat) -> tuple[int, units.Work]:
    """Adds up numbers along a chain: each process adds its task to what the one before has."""
    arrays = seat.arrays()

    def run(command: str) -> float:
        if command == "fail":
            raise ValueError("no\nsuch command")
        if seat.before:
            seat.before.wait()
        before = arrays["total"][seat.number - 1] if seat.number else 0
        arrays["total"][seat.number] = before + seat.task
        if seat.after:
            seat.after.send()
        return seat.waited_s()

    return seat.number, work(seat, run)


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
