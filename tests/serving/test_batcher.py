"""Tests the batcher with a pool of one thread, whose scores tell which windows it has got."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from nq.errors import Error
from nq.inference.scorer import Progress, Rows, Scorer, no_progress
from nq.records import Columns, Example, Windowed
from nq.serving.batcher import Batcher, ScoringError
from nq.serving.metrics import Metrics

SIZE = 8


class OneThread(Scorer):
    """Scores each window by its own number, in a thread that waits until it may.

    Attributes:
        batches: windows of the batches that it has begun.
        go: set when it may.
        error: is raised in place of scores.
    """

    parallel_parts = 1

    def __init__(self) -> None:
        self.batches, self.go = list[int](), threading.Event()
        self.error: Exception | None = None
        self._threads = ThreadPoolExecutor(1)
        self.go.set()

    def submit(
        self, rows: Rows, examples: Sequence[Example], progress: Progress = no_progress
    ) -> Future[Columns]:
        return self._threads.submit(self.scores, rows, examples)

    def scores(
        self, rows: Rows, examples: Sequence[Example], progress: Progress = no_progress
    ) -> Columns:
        self.batches.append(len(rows["window_ids"]))
        starts = np.flatnonzero(rows["window_ids"][:, 0] == 0)
        assert len(starts) == len(examples)
        self.go.wait()
        if self.error:
            raise self.error
        return {"sum": rows["input_ids"].sum(axis=1)}


def example(number: int, windows: int) -> Windowed:
    ids = np.stack([np.arange(windows), np.full(windows, windows)], axis=1)
    rows = {"window_ids": ids, "input_ids": np.full((windows, 3), number) + ids[:, :1]}
    return Windowed(Example(number, "who", ["a"], [False], ()), rows)


@contextlib.asynccontextmanager
async def running(pool: OneThread, size: int = SIZE) -> AsyncIterator[Batcher]:
    batcher = Batcher(size, Metrics())
    task = asyncio.create_task(batcher.run(pool))
    try:
        yield batcher
    finally:
        pool.go.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def waiting(batcher: Batcher, number: int, windows: int) -> asyncio.Task[Any]:
    return asyncio.create_task(batcher.score(example(number, windows)))


async def begun(pool: OneThread, batches: int) -> None:
    while len(pool.batches) < batches:
        await asyncio.sleep(0.001)


def test_each_example_gets_its_own_scores_whatever_is_beside_it() -> None:
    async def main() -> None:
        draw = np.random.default_rng(4)
        counts = draw.integers(1, 2 * SIZE, 60).tolist()
        async with running(pool) as batcher:
            tasks = [waiting(batcher, 100 * n, count) for n, count in enumerate(counts)]
            for n, (task, count) in enumerate(zip(tasks, counts, strict=True)):
                scored = await task
                assert scored.columns["sum"].tolist() == [3 * (100 * n + i) for i in range(count)]
        assert sum(pool.batches) == sum(counts)
        assert all(size <= max(SIZE, *counts) for size in pool.batches)

    pool = OneThread()
    asyncio.run(main())


def test_what_waits_is_batched_up_to_the_size_and_in_order() -> None:
    async def main() -> None:
        async with running(pool) as batcher:
            pool.go.clear()
            first = waiting(batcher, 0, 1)
            await begun(pool, 1)
            others = [waiting(batcher, n, windows) for n, windows in enumerate((3, 5, 1, 20, 2, 2))]
            await asyncio.sleep(0)
            pool.go.set()
            await asyncio.gather(first, *others)

    pool = OneThread()
    asyncio.run(main())
    assert pool.batches == [1, 8, 1, 20, 4]


def test_what_nobody_waits_for_is_not_computed() -> None:
    async def main() -> None:
        async with running(pool) as batcher:
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

    pool = OneThread()
    asyncio.run(main())
    assert pool.batches == [1, 2, 1]


def test_an_error_reaches_all_of_its_batch_and_no_others() -> None:
    async def main() -> None:
        async with running(pool) as batcher:
            pool.error = Error("out of order")
            tasks = [waiting(batcher, n, 1) for n in range(3)]
            for task in tasks:
                with pytest.raises(ScoringError, match="out of order"):
                    await task
            pool.error = None
            assert (await waiting(batcher, 2, 1)).columns["sum"].tolist() == [6]

    pool = OneThread()
    asyncio.run(main())
