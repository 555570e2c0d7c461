"""Study 1: the source's figures, approaches, budget, resuming, verdicts by hand."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from experiments import concurrency, units
from experiments.concurrency import Task
from experiments.workloads import Workload

pytestmark = pytest.mark.extended

TINY = Workload("tiny", "tensorflow", 16)


def row(approach: str, n: int, seconds: float, memory_mb: float = 100.0, **more: Any) -> Any:
    """Returns a row whose rounds all take so long."""
    return {
        **{"shape": "base", "length": 128, "engine": "tensorflow", "n": n, "models": n},
        **{"approach": approach, "weights": "own", "memory_mb": memory_mb, "status": "measured"},
        **{"seconds": [seconds] * 5, "source_seconds": [seconds / 2] * 5},
        **more,
    }


@pytest.mark.parametrize("count", [1, 3])
def test_every_approach_runs_each_step_once(count: int) -> None:
    runs: list[int] = []
    steps = [functools.partial(runs.append, i) for i in range(count)]
    executor, loop = ThreadPoolExecutor(count), asyncio.new_event_loop()
    approaches: list[Callable[[], tuple[float, float]]] = [
        lambda: concurrency.one_after_the_other(steps),
        lambda: concurrency.in_threads(steps),
        lambda: concurrency.in_asyncio(steps, loop, executor),
    ]
    for run in approaches:
        total, waiting = run()
        assert 0 <= waiting <= total
        assert sorted(runs) == list(range(count))
        runs.clear()
    loop.close()
    executor.shutdown()


def test_a_real_unit_runs_all_approaches() -> None:
    task = Task(TINY, 2, shared=False, budget_mb=1e6)
    with units.started(concurrency.load, task, (), units.thread_settings(1)) as unit:
        assert unit.receive().models == 2
        for approach in concurrency.IN_PROCESS:
            seconds, waiting = unit.ask(approach)
            assert 0 < waiting <= seconds
        assert unit.ask(concurrency.MEMORY) > 100
