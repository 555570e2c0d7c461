"""Batches the windows of requests that wait, of all clients, for the processes of the model.

A batch has whole examples, because a scorer decides by all windows of a page which of them it
computes. It begins when a process is free and its windows are ``batch_size``, or when its first
example has waited for ``WAIT_S``. While all processes are busy, what arrives makes larger batches.
"""

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from nq.inference.scorer import Part, Scored, Scorer
from nq.records import Windowed
from nq.serving.metrics import Metrics

log = logging.getLogger(__name__)

WAIT_S = 0.010


class ScoringError(Exception):
    """The model has not scored the windows; the text says why."""


@dataclass(eq=False)
class _Waiting:
    """An example that waits for its scores since a moment of the event loop's clock.

    Nobody waits for it any more when the future of its scores is cancelled.
    """

    windowed: Windowed
    scored: asyncio.Future[Scored]
    since: float


class Batcher:
    """Collects examples and has them scored in batches, in the order in which they came.

    It is used in one event loop. An example with more than ``batch_size`` windows is a batch of its
    own.
    """

    def __init__(self, batch_size: int, metrics: Metrics) -> None:
        self._batch_size, self._metrics = batch_size, metrics
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._next: _Waiting | None = None  # taken from the queue, too large for the last batch
        self._computing: set[asyncio.Task[None]] = set()
        self.scored_at = -math.inf  # the last batch, by the clock of the event loop
        metrics.queue_length.set_function(lambda: self._queue.qsize() + (self._next is not None))

    async def score(self, windowed: Windowed) -> Scored:
        """Returns an example with its scores, or raises ``ScoringError``.

        If the caller is cancelled while all processes are busy, the example is left out.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(windowed, loop.create_future(), loop.time())
        self._queue.put_nowait(waiting)
        return await waiting.scored

    async def run(self, pool: Scorer) -> None:
        """Has a pool score its parallel parts, each a batch, until it is cancelled."""
        free = asyncio.Semaphore(pool.parallel_parts)
        while True:
            await free.acquire()
            task = asyncio.create_task(self._compute(pool, await self._next_batch()))
            task.add_done_callback(lambda _: free.release())
            self._computing.add(task)
            task.add_done_callback(self._computing.discard)

    async def _next_batch(self) -> list[_Waiting]:
        batch, windows = list[_Waiting](), 0
        deadline: float | None = None  # there is none for the first example
        while windows < self._batch_size:
            if self._next is None:
                try:
                    async with asyncio.timeout_at(deadline):
                        self._next = await self._queue.get()
                except TimeoutError:
                    break
            if not self._next.scored.done():
                windows += len(self._next.windowed)
                if batch and windows > self._batch_size:
                    break
                batch.append(self._next)
                deadline = batch[0].since + WAIT_S
            self._next = None
        return batch

    async def _compute(self, pool: Scorer, batch: Sequence[_Waiting]) -> None:
        part = Part([waiting.windowed for waiting in batch])
        self._metrics.batch_windows.observe(len(part))
        try:
            columns = await asyncio.wrap_future(pool.submit(part.rows, part.examples))
            results = list(part.scored(columns))
        except Exception as error:
            log.error("a batch of %d questions is not scored: %s", len(batch), error)
            for waiting in batch:
                if not waiting.scored.done():
                    waiting.scored.set_exception(ScoringError(str(error)))
        else:
            self._metrics.windows.inc(len(part))
            self.scored_at = asyncio.get_running_loop().time()
            for waiting, result in zip(batch, results, strict=True):
                if not waiting.scored.done():
                    waiting.scored.set_result(result)
