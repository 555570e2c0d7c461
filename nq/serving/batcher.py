"""Batches the windows of requests that wait, of all clients, for the processes of the model.

A batch has whole examples, because a scorer decides by all windows of a page which of them it
computes. It begins when a process is free and its windows are ``batch_size``, or when its first
example has waited for ``WAIT_S``. While all processes are busy, what arrives makes larger batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from nq.inference.scorer import Rows, concatenate, split_examples
from nq.records import Columns, Example
from nq.serving.metrics import Metrics

log = logging.getLogger(__name__)

WAIT_S = 0.010


class ScoringError(Exception):
    """The model has not scored the windows; the text says why."""


class Pool(Protocol):
    """Processes that score examples beside each other."""

    def submit(self, rows: Rows, examples: Sequence[Example]) -> Future[Columns]:
        """Returns a future of the columns; see ``nq.inference.scorer.Scorer.scores``."""


@dataclass(eq=False)
class _Waiting:
    """An example that waits for its scores.

    Args:
        example: question and page.
        rows: all windows of the example.
        scores: receives the columns of the example; it is cancelled where nobody waits any more.
        since: time of the event loop.
    """

    example: Example
    rows: Columns
    scores: asyncio.Future[Columns]
    since: float

    def __len__(self) -> int:
        return len(self.rows["window_ids"])


class Batcher:
    """Collects examples and has them scored in batches, in the order in which they came.

    It is used in one event loop.

    Args:
        pool: scores the batches.
        at_once: batches that are scored at the same time, usually one for each process.
        batch_size: windows in a batch; an example that has more is a batch of its own.
        metrics: counts windows.
    """

    def __init__(self, pool: Pool, at_once: int, batch_size: int, metrics: Metrics) -> None:
        self._pool, self._batch_size, self._metrics = pool, batch_size, metrics
        self._free = asyncio.Semaphore(at_once)
        self._waiting: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()
        self._computing: set[asyncio.Task[None]] = set()
        metrics.queue_length.set_function(lambda: len(self._waiting))

    async def scores(self, example: Example, rows: Columns) -> Columns:
        """Returns the columns of one example's windows, see ``Scorer.scores``.

        If the caller is cancelled before a process has begun, the example is left out.

        Args:
            example: question and page.
            rows: all windows of the example.

        Raises:
            ScoringError: the batch of the example is not scored.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(example, rows, loop.create_future(), loop.time())
        self._waiting.append(waiting)
        self._arrived.set()
        return await waiting.scores

    async def run(self) -> None:
        """Makes batches until it is cancelled."""
        try:
            while True:
                await self._free.acquire()
                task = asyncio.create_task(self._compute(await self._next_batch()))
                self._computing.add(task)
                task.add_done_callback(self._computing.discard)
        finally:
            for waiting in self._waiting:
                waiting.scores.cancel()

    async def _next_batch(self) -> list[_Waiting]:
        """Waits for examples; returns those of the next batch."""
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            await self._wait_for_more()
            if batch := self._collected():
                return batch

    async def _wait_for_more(self) -> None:
        """Waits until the windows are enough for a batch, or the first example has waited."""
        loop = asyncio.get_running_loop()
        deadline = self._waiting[0].since + WAIT_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while sum(map(len, self._waiting)) < self._batch_size and loop.time() < deadline:
                    self._arrived.clear()
                    await self._arrived.wait()

    def _collected(self) -> list[_Waiting]:
        """Takes the examples of a batch; those for which nobody waits are dropped."""
        batch, windows = list[_Waiting](), 0
        while self._waiting:
            first = self._waiting[0]
            if not first.scores.done():
                if batch and windows + len(first) > self._batch_size:
                    break
                batch.append(first)
                windows += len(first)
            self._waiting.popleft()
        return batch

    async def _compute(self, batch: Sequence[_Waiting]) -> None:
        """Has a batch scored and gives each example its columns."""
        rows = concatenate([waiting.rows for waiting in batch])
        self._metrics.batch_windows.observe(len(rows["window_ids"]))
        try:
            future = self._pool.submit(rows, [waiting.example for waiting in batch])
            columns = await asyncio.wrap_future(future)
            parts = split_examples(rows, columns)
        except Exception as error:
            log.error("a batch of %d questions is not scored: %s", len(batch), error)
            for waiting in batch:
                if not waiting.scores.done():
                    waiting.scores.set_exception(ScoringError(str(error)))
        else:
            self._metrics.windows.inc(len(rows["window_ids"]))
            for waiting, part in zip(batch, parts, strict=True):
                if not waiting.scores.done():
                    waiting.scores.set_result(part)
        finally:
            self._free.release()
