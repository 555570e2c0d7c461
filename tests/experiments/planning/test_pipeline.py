"""PipeDream's programme against all partitions, and times of pipelines against a simulation."""

import itertools
import math
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from experiments.planning.pipeline import Stage, flow_seconds, partition

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
