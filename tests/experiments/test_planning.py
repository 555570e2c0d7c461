"""Planning: costs, pipelines and strategies against slower truths, and the command."""

import itertools
import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.planning import __main__ as command
from experiments.planning import devices, models, strategies
from experiments.planning.costs import Costs, Workload, units
from experiments.planning.devices import Device, Group, TypeTable
from experiments.planning.models import (
    SHAPES,
    weight_shapes,
    window_gflop,
)
from experiments.planning.pipeline import Stage, flow_seconds, partition
from nq.model.config import ModelConfig

DEVICE = Device(TypeTable(10.0), TypeTable(1.0), 16, 900, 150, 10, price_per_hour=3)
LARGE = SHAPES["bert-large"]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 512), st.sampled_from(sorted(SHAPES)))
def test_no_plan_is_faster_than_all_devices_without_waiting(
    batch: int, count: int, length: int, name: str
) -> None:
    work = Workload(SHAPES[name], batch, length)
    whole = sum(Costs(work, DEVICE, batch).seconds)
    n_units = len(units(work.config, length))
    plans = strategies.plans(work, Group(DEVICE, count, DEVICE))
    assert plans == sorted(plans, key=strategies.order)
    for plan in plans:
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


ALBERT = ModelConfig(model_type="albert", embedding_size=128, num_hidden_groups=1)
CONFIGS = {**SHAPES, "albert": ALBERT}


@pytest.mark.parametrize("name", CONFIGS)
def test_parts_have_all_weights_and_operations(name: str) -> None:
    config = CONFIGS[name]
    parts = units(config, 384)
    weights = {part.weights: part.whole + part.split for part in parts}
    assert sum(weights.values()) == sum(map(math.prod, weight_shapes(config).values()))
    assert len(parts) == config.num_hidden_layers + 2
    layers = sum(part.flop for part in parts if part.is_layer)
    assert layers / 1e9 == pytest.approx(window_gflop(config, 384))
    assert sum(part.flop for part in parts) < 1.02 * layers


TIMES = st.lists(st.integers(0, 9), min_size=1, max_size=6)
STATIONS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=4)


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yields all ways to write a number as a sum of positive ones, in order."""
    for cuts in itertools.combinations(range(1, total), parts - 1):
        ends = (0, *cuts, total)
        yield tuple(b - a for a, b in itertools.pairwise(ends))


def everything(layers: int, devices: int) -> Iterator[tuple[Stage, ...]]:
    """Yields all partitions into several stages that use exactly so many devices."""
    for stages in range(2, min(layers, devices) + 1):
        for sizes in compositions(layers, stages):
            starts = [0, *itertools.accumulate(sizes)]
            for replicas in compositions(devices, stages):
                yield tuple(Stage(starts[k], starts[k + 1], replicas[k]) for k in range(stages))


def bottleneck(stages: tuple[Stage, ...], layers: list[int], sends: list[int]) -> float:
    """Returns the longest time of a stage or of a message."""
    computing = [sum(layers[s.first : s.end]) / s.replicas for s in stages]
    return max([*computing, *(sends[s.end - 1] for s in stages[:-1])])


@given(TIMES, st.integers(1, 5), st.integers(1, 5), st.data())
def test_the_programme_is_as_good_as_the_best_of_all_partitions(
    layers: list[int], devices: int, most: int, data: st.DataObject
) -> None:
    n = len(layers)
    sends = data.draw(st.lists(st.integers(0, 9), min_size=n - 1, max_size=n - 1))
    limit = data.draw(st.integers(1, n))

    def fits(first: int, end: int) -> bool:
        return end - first <= limit

    allowed = [
        stages
        for stages in everything(n, devices)
        if all(s.replicas <= most and fits(s.first, s.end) for s in stages)
    ]
    best = min((bottleneck(stages, layers, sends) for stages in allowed), default=math.inf)
    stages = partition(layers, sends, devices, most, fits)
    if stages is None:
        assert not allowed
    else:
        assert stages in allowed and bottleneck(stages, layers, sends) == best


@given(STATIONS, st.integers(1, 7))
def test_flow_is_what_a_simulation_takes(stations: list[tuple[int, int]], count: int) -> None:
    """The simulation goes forward unit by unit of time; micro-batches take servers in turn."""
    waiting = [list(range(count)), *([] for _ in stations)]
    busy: dict[tuple[int, int], tuple[int, int]] = {}  # station, server: micro-batch, end
    now = 0
    while len(waiting[-1]) < count:
        for (k, server), (m, end) in list(busy.items()):
            if end == now:
                del busy[k, server]
                waiting[k + 1].append(m)
        for k, (time, servers) in enumerate(stations):
            for m in sorted(waiting[k]):
                if (k, m % servers) not in busy:
                    waiting[k].remove(m)
                    busy[k, m % servers] = m, now + time
        now += 1
    assert flow_seconds([(float(s), r) for s, r in stations], count) == now - 1


SESSION = re.compile(
    r"^\$ python -m experiments\.planning (.*?[^\\])\n(.*?)^```", re.DOTALL | re.MULTILINE
)


@pytest.mark.parametrize("number", [0, 1])
def test_the_documentation_shows_what_the_command_prints(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    page = devices.KNOWN.with_name("README.md").read_text("utf-8")
    sessions = SESSION.findall(page)
    assert len(sessions) == 2
    shell, shown = sessions[number]
    assert command.main(shlex.split(shell.replace("\\\n", ""))) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("batch", "memory_gb", "expected"),
    [
        (1, 16, "is the fastest for batches of 1 window, although the model fits on one device"),
        (64, 2, "is the fastest of what fits: no device holds the whole model."),
        (64, 1, "The model fits nowhere: add devices or memory, or choose a smaller model"),
    ],
)
def test_the_conclusion_depends_on_what_fits(batch: int, memory_gb: int, expected: str) -> None:
    device = replace(devices.load(devices.KNOWN)["v100"], memory_gb=memory_gb)
    work = Workload(models.SHAPES["bert-large"], batch, 512)
    plans = strategies.plans(work, Group(device, 8, device))
    assert expected in command.conclusion(work, plans)
