"""Study 4: split models against the unsplit one, real processes, killed ones, verdicts by hand."""

import dataclasses
import itertools
import os
import signal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from experiments import units, workloads
from experiments.partition import group, stages, tensor
from experiments.partition.stages import LOGITS
from experiments.workloads import Workload
from nq.errors import Error
from nq.model import joint
from nq.records import MODEL_INPUTS
from tests.support import tiny_models

pytestmark = pytest.mark.extended

FOUR = dataclasses.replace(tiny_models.SHAPE, num_hidden_layers=4)
TINY = Workload("tiny", "tensorflow", 16, batch=5)
CLOSE = 1e-5


def computed(
    model: Any, rows: dict[str, Any], cuts: Sequence[int], micro_batches: int
) -> dict[str, Any]:
    """Returns the logits of a model that is cut, its stages computed one after the other."""
    batch, length = rows["input_ids"].shape
    task = stages.Task(dataclasses.replace(TINY, batch=batch, length=length), tuple(cuts))
    shapes = stages.shapes(task.workload, cuts)
    memory = group.shared_memory(shapes)
    for number in range(len(cuts) + 1):
        own = stages.stage_model(model, cuts, number)

        def compute(inputs: Sequence[Any], own: Any = own) -> Sequence[Any]:
            outputs = own(list(inputs), training=False)
            return [np.asarray(x) for x in (outputs if isinstance(outputs, list) else [outputs])]

        seat = group.Seat(task, number, len(cuts) + 1, shapes, memory)
        if not number:
            stages.fill(seat.arrays(), rows)
        stages.Stage(compute, seat).run(micro_batches)
    return seat.arrays()


@pytest.mark.parametrize("shape", [FOUR, tiny_models.RELATIVE, tiny_models.MPNET])
def test_every_cut_keeps_the_logits(shape: Any) -> None:
    is_mpnet = shape.model_type == "mpnet"
    model = joint.build(shape, seed=3) if is_mpnet else tiny_models.model(shape=shape)
    rows = tiny_models.rows([12, 16, 9, 16, 7], 16)
    rows["input_ids"] %= shape.vocab_size
    expected = {name: np.asarray(values) for name, values in model(rows, training=False).items()}
    assert min(float(np.ptp(values)) for values in expected.values()) > 0.01
    layers = range(1, shape.num_hidden_layers)
    every = [cuts for n in range(len(layers) + 1) for cuts in itertools.combinations(layers, n)]
    for cuts in every:
        for micro_batches in (1, 2, 3, 5, 9) if len(cuts) == 1 else (2,):
            logits = computed(model, rows, cuts, micro_batches)
            assert stages.drift(logits, expected) < CLOSE, (cuts, micro_batches)


def test_two_real_stages_have_the_logits_of_the_unsplit_model() -> None:
    each = units.shares(os.sched_getaffinity(0), 2)
    model = joint.build(TINY.config)
    rows = workloads.rows(TINY)
    rows["input_mask"][1, 9:] = 0
    expected = model({name: rows[name] for name in MODEL_INPUTS}, training=False)
    expected = {name: np.asarray(values) for name, values in expected.items()}
    task, places = stages.Task(TINY, (1,)), [own[:1] for own in each]
    with group.started(stages.load, task, places, stages.shapes(TINY, (1,))) as running:
        stages.fill(running.arrays, rows)
        for micro_batches in (1, 2, 3, 5, 16):
            for name in LOGITS:
                running.arrays[name][:] = np.nan
            busy_s = running.ask("run", micro_batches)
            assert min(busy_s) > 0
            assert stages.drift(running.arrays, expected) < CLOSE
        assert min(running.ask("bounce", 3) + running.ask("alone", 2)) > 0
        os.kill(running.members[1].process.pid or 0, signal.SIGKILL)
        with pytest.raises(Error, match=r"process 2 of 2: the process was killed"):
            running.ask("run", 5)


@pytest.mark.peers
def test_two_devices_have_the_logits_of_one() -> None:
    pytest.importorskip("jax")
    logits = []
    for devices in (1, 2):
        task, settings = tensor.Task(TINY, devices), tensor.environment(devices)
        with units.started(tensor.load, task, (), settings) as unit:
            loaded = unit.receive()
            logits.append(unit.ask(tensor.LOGITS))
    assert loaded["all_reduces"] == 2 * TINY.config.num_hidden_layers
    assert stages.drift(*logits) < CLOSE
