"""The times of pipelines against a simulation that goes forward unit by unit of time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nq.planning.devices import Link
from nq.planning.pipeline import (
    Station,
    flow_seconds,
    pipeline_seconds,
    predicted_seconds,
)

SECONDS = st.lists(st.integers(1, 5), min_size=1, max_size=4)
COUNTS = st.integers(1, 7)


def simulated(stations: list[tuple[int, int]], micro_batches: int) -> int:
    """Returns the whole units of time until all are ready, one unit after the other.

    Args:
        stations: time and number of servers of each.
        micro_batches: each is taken by the server of its number, modulo that of the servers.
    """
    waiting = [list(range(micro_batches)), *([] for _ in stations)]
    busy: dict[tuple[int, int], tuple[int, int]] = {}  # station, server: micro-batch, end
    now = 0
    while len(waiting[-1]) < micro_batches:
        for (k, server), (m, end) in list(busy.items()):
            if end == now:
                del busy[k, server]
                waiting[k + 1].append(m)
        for k, (time, servers) in enumerate(stations):
            for m in list(waiting[k]):
                if (k, m % servers) not in busy and m == min(
                    other for other in waiting[k] if other % servers == m % servers
                ):
                    waiting[k].remove(m)
                    busy[k, m % servers] = m, now + time
        now += 1
    return now - 1


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=4), COUNTS)
def test_flow_is_what_a_simulation_takes(stations: list[tuple[int, int]], count: int) -> None:
    flow = flow_seconds([Station(float(s), r) for s, r in stations], count)
    assert flow == simulated(stations, count)


@given(SECONDS, COUNTS)
def test_the_equation_is_what_a_simulation_takes(stages: list[int], count: int) -> None:
    assert pipeline_seconds(stages, count) == simulated([(s, 1) for s in stages], count)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), COUNTS, st.integers(1, 9))
def test_sending_overlaps_or_belongs_to_the_sender(
    layers: list[int], count: int, sending: int
) -> None:
    layers, cut = list(layers), len(layers) // 2
    first, last = sum(layers[:cut]), sum(layers[cut:])
    args = layers, [cut], count, float(sending), Link(1.0)
    assert predicted_seconds(*args) == simulated([(first + sending, 1), (last, 1)], count)
    assert predicted_seconds(*args, overlap=True) == simulated(
        [(first, 1), (sending, 1), (last, 1)], count
    )
