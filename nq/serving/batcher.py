"""Batches the windows of requests that wait, of all clients, for the processes of the model.

A batch has whole examples, because a scorer decides by all windows of a page which of them it
computes. It begins when a process is free and its windows are ``batch_size``, or when its first
example has waited for ``WAIT_S``. While all processes are busy, what arrives makes larger batches.
"""

from __future__ import annotations

import asyncio
import logging
import math
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
    """An example that waits for its scores since a moment of the event loop's clock.

    Nobody waits for it any more when the future of its scores is cancelled.
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
        batch_size: windows in a batch; an example that has more is a batch of its own.
        metrics: counts windows.
    """

    def __init__(self, batch_size: int, metrics: Metrics) -> None:
        self._batch_size, self._metrics = batch_size, metrics
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._next: _Waiting | None = None  # taken from the queue, too large for the last batch
        self._computing: set[asyncio.Task[None]] = set()
        self.scored_at = -math.inf  # the last batch, by the clock of the event loop
        metrics.queue_length.set_function(lambda: self._queue.qsize() + (self._next is not None))

    async def scores(self, example: Example, rows: Columns) -> Columns:
        """Returns the columns of one example's windows, see ``Scorer.scores``.

        If the caller is cancelled while all processes are busy, the example is left out.

        Raises:
            ScoringError: the batch of the example is not scored.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(example, rows, loop.create_future(), loop.time())
        self._queue.put_nowait(waiting)
        return await waiting.scores

    async def run(self, pool: Pool, at_once: int) -> None:
        """Has a pool score batches, so many at the same time, until it is cancelled."""
        free = asyncio.Semaphore(at_once)
        while True:
            await free.acquire()
            task = asyncio.create_task(self._compute(pool, await self._next_batch()))
            task.add_done_callback(lambda _: free.release())
            self._computing.add(task)
            task.add_done_callback(self._computing.discard)

    async def _next_batch(self) -> list[_Waiting]:
        """Waits for the examples of the next batch."""
        batch, windows = list[_Waiting](), 0
        deadline: float | None = None  # there is none for the first example
        while windows < self._batch_size:
            if self._next is None:
                try:
                    async with asyncio.timeout_at(deadline):
                        self._next = await self._queue.get()
                except TimeoutError:
                    break
            if not self._next.scores.done():
                windows += len(self._next)
                if batch and windows > self._batch_size:
                    break
                batch.append(self._next)
                deadline = batch[0].since + WAIT_S
            self._next = None
        return batch

    async def _compute(self, pool: Pool, batch: Sequence[_Waiting]) -> None:
        """Has a batch scored and gives each example its columns."""
        rows = concatenate([waiting.rows for waiting in batch])
        self._metrics.batch_windows.observe(len(rows["window_ids"]))
        try:
            future = pool.submit(rows, [waiting.example for waiting in batch])
            results = split_examples(rows, await asyncio.wrap_future(future))
        except Exception as error:
            log.error("a batch of %d questions is not scored: %s", len(batch), error)
            for waiting in batch:
                if not waiting.scores.done():
                    waiting.scores.set_exception(ScoringError(str(error)))
        else:
            self._metrics.windows.inc(len(rows["window_ids"]))
            self.scored_at = asyncio.get_running_loop().time()
            for waiting, result in zip(batch, results, strict=True):
                if not waiting.scores.done():
                    waiting.scores.set_result(result)
