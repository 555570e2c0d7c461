"""The ranking of strategies: what fits, what wins, and why not."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.planning import strategies
from experiments.planning.costs import Costs, Workload, units
from experiments.planning.devices import Device, Group, TypeTable
from experiments.planning.models import SHAPES
from experiments.planning.strategies import (
    DATA,
    PIPELINE,
    REPLICATED,
    SINGLE,
    TENSOR,
    TENSOR_PIPELINE,
    Plan,
)

DEVICE = Device(TypeTable(10.0), TypeTable(1.0), 16, 900, 150, 10, price_per_hour=3)
LARGE = SHAPES["bert-large"]
ALL = {SINGLE, DATA, PIPELINE, REPLICATED, TENSOR, TENSOR_PIPELINE}


def planned(workload: Workload, count: int, device: Device = DEVICE) -> dict[str, Plan]:
    rows = strategies.plans(workload, Group(device, count, device))
    assert rows == sorted(rows, key=strategies.order)
    return {row.strategy: row for row in rows}


def test_copies_win_where_the_model_fits() -> None:
    rows = planned(Workload(LARGE, 64, 512, windows=1000), 8)
    assert set(rows) == ALL
    assert next(iter(rows)) == DATA
    assert all(row.fits for row in rows.values())
    one, eight = rows[SINGLE], rows[DATA]
    assert one.batch_s == pytest.approx(8 * eight.batch_s, rel=0.01)
    assert eight.moved_bytes == 0
    assert eight.bubble == pytest.approx(0.0)
    assert one.hours == pytest.approx(16 * one.batch_s / 3600)
    assert one.cost == pytest.approx(3.0 * 16 * one.batch_s / 3600)
    assert eight.cost == pytest.approx(8 * 3.0 * 16 * eight.batch_s / 3600)


def test_the_time_of_a_pipeline_is_the_equation() -> None:
    work = Workload(LARGE, 64, 512)
    plan = planned(work, 4)[PIPELINE]
    costs = Costs(work, DEVICE, 64 // plan.micro_batches)
    stages = [sum(costs.seconds[stage.first : stage.end]) for stage in plan.stages]
    sending = 1e-5 + work.activation_bytes(costs.windows) / 1.5e11
    slowest = max(*stages, sending)
    expected = sum(stages) + 3 * sending + (plan.micro_batches - 1) * slowest
    assert plan.batch_s == pytest.approx(expected)
    assert plan.moved_bytes == pytest.approx(3 * work.activation_bytes(64))
    busy = plan.micro_batches * sum(stages) / (4 * plan.batch_s)
    assert plan.bubble == pytest.approx(1 - busy)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 512), st.sampled_from(sorted(SHAPES)))
def test_no_plan_is_faster_than_all_devices_without_waiting(
    batch: int, count: int, length: int, name: str
) -> None:
    work = Workload(SHAPES[name], batch, length)
    whole = sum(Costs(work, DEVICE, batch).seconds)
    n_units = len(units(work.config, length))
    for plan in strategies.plans(work, Group(DEVICE, count, DEVICE)):
        if not plan.stages:
            assert plan.reason and math.isinf(plan.batch_s)
            continue
        assert plan.batch_s >= whole / plan.devices * (1 - 1e-9)
        assert -1e-9 <= plan.bubble < 1
        assert 1 <= plan.micro_batches <= batch
        assert plan.devices <= count
        ends = [0, *(stage.end for stage in plan.stages)]
        assert [stage.first for stage in plan.stages] == ends[:-1]
        assert ends[-1] == n_units
