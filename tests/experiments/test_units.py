"""Processes of the studies: what they start with, how they fail, how models are loaded in them."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import units
from experiments.workloads import ENGINE_PACKAGES, Model, Workload, missing
from tests.experiments import light_units


@given(st.sets(st.integers(0, 100), min_size=1), st.integers(1, 12))
def test_instances_have_disjoint_cores_as_long_as_there_are_enough(
    cores: set[int], instances: int
) -> None:
    shares = units.shares(cores, instances)
    assert len(shares) == instances
    assert all(share and set(share) <= cores for share in shares)
    assert len({len(share) for share in shares}) == 1
    if len(cores) >= instances:
        assert sum(map(len, shares)) == len(set().union(*shares))


def test_a_unit_starts_with_its_cores_and_its_environment() -> None:
    (first, *_) = before = sorted(os.sched_getaffinity(0))
    settings, names = units.thread_settings(3), ["TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"]
    with units.started(light_units.environment, names, [first], settings) as unit:
        values, cores, heavy = unit.receive()
        assert unit.ask("hello") == "hello"
    assert values == dict.fromkeys(names, "3")
    assert (cores, heavy) == ([[first]], [])
    assert sorted(os.sched_getaffinity(0)) == before
    assert os.environ.get("TF_NUM_INTRAOP_THREADS") != "3"


# torch after TensorFlow in one process may crash; the study has one engine in each process
@pytest.mark.parametrize("engine", [name for name in ENGINE_PACKAGES if name != "torch"])
@pytest.mark.extended
def test_two_steps_of_one_model_run_in_every_engine(engine: str) -> None:
    assert not missing(engine)
    model = Model(Workload("tiny", engine, 16))
    for step in (model.step(), model.step()):
        step()
