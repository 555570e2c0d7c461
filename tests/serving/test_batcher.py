"""Tests the batcher with a process whose scores tell which windows it has got."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from nq.errors import Error
from nq.inference.scorer import Rows, Scorer, Steps
from nq.records import Example, Windowed
from nq.serving.batcher import Batcher, ScoringError

SIZE = 8


class Process(Scorer):
    """Computes a batch in a step, each window scored by its own number, once it may.

    Attributes:
        batches: windows of the batches that it has begun.
        go: set when it may.
        error: is raised in place of scores.
    """

    def __init__(self) -> None:
        self.batches = list[int]()
        self.go = threading.Event()
        self.error: Exception | None = None
        self.go.set()

    def steps(self, rows: Rows, examples: Sequence[Example]) -> Steps:
        starts = np.flatnonzero(rows["window_ids"][:, 0] == 0)
        assert len(starts) == len(examples)
        self.batches.append(len(rows["window_ids"]))
        self.go.wait()
        if self.error:
            raise self.error
        yield from ()
        return {"sum": rows["input_ids"].sum(axis=1)}


def example(number: int, windows: int) -> Windowed:
    ids = np.stack([np.arange(windows), np.full(windows, windows)], axis=1)
    rows = {"window_ids": ids, "input_ids": np.full((windows, 3), number) + ids[:, :1]}
    return Windowed(Example(number, "who", ["a"], [False], ()), rows)


def run(main: Callable[[Process, Batcher], Awaitable[None]]) -> Process:
    """Runs a function on a process and the batcher that feeds it; returns the process."""
    process = Process()

    async def running() -> None:
        batcher = Batcher(SIZE, CollectorRegistry())
        task = asyncio.create_task(batcher.run([process]))
        try:
            await main(process, batcher)
        finally:
            process.go.set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(running())
    return process


def waiting(batcher: Batcher, number: int, windows: int) -> asyncio.Task[Any]:
    return asyncio.create_task(batcher.score(example(number, windows)))


async def begun(pool: Process, batches: int) -> None:
    while len(pool.batches) < batches:
        await asyncio.sleep(0.001)


def test_what_waits_is_batched_up_to_the_size_and_in_order() -> None:
    async def main(pool: Process, batcher: Batcher) -> None:
        pool.go.clear()
        first = waiting(batcher, 0, 1)
        await begun(pool, 1)
        others = [waiting(batcher, n, windows) for n, windows in enumerate((3, 5, 1, 20, 2, 2))]
        await asyncio.sleep(0)
        pool.go.set()
        await asyncio.gather(first, *others)

    pool = run(main)
    assert pool.batches == [1, 8, 1, 20, 4]


def test_what_nobody_waits_for_is_not_computed() -> None:
    async def main(pool: Process, batcher: Batcher) -> None:
        pool.go.clear()
        first = waiting(batcher, 0, 1)
        await begun(pool, 1)
        late = [waiting(batcher, n, 2) for n in range(3)]
        await asyncio.sleep(0)
        late[0].cancel()
        late[2].cancel()
        pool.go.set()
        await asyncio.gather(first, late[1])
        last = await waiting(batcher, 5, 1)
        assert last.columns["sum"].tolist() == [15]

    pool = run(main)
    assert pool.batches == [1, 2, 1]


def test_an_error_reaches_all_of_its_batch_and_no_others() -> None:
    async def main(pool: Process, batcher: Batcher) -> None:
        pool.error = Error("out of order")
        tasks = [waiting(batcher, n, 1) for n in range(3)]
        for task in tasks:
            with pytest.raises(ScoringError, match="out of order"):
                await task
        pool.error = None
        assert (await waiting(batcher, 2, 1)).columns["sum"].tolist() == [6]

    run(main)
