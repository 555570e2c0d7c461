"""Batches the windows of requests that wait, of all clients, for the processes of the model.

A batch has whole examples, because a scorer decides by all windows of a page which of them it
computes. It begins when a process is free and its windows are ``batch_size``, or when its first
example has waited for ``WAIT_S``. While all processes are busy, what arrives makes larger batches.

A process that has begun several batches computes one step of each in turn, so that a long page
delays a short one by a step. Between two steps it leaves out what nobody waits for any more.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from nq.inference.scorer import Part, Scored, Scorer, Steps, advance
from nq.records import Columns, Windowed

log = logging.getLogger(__name__)

WAIT_S = 0.010
SIZES = [1 << n for n in range(11)]
"""Upper bounds of the histogram of windows in a batch."""


class ScoringError(Exception):
    """The model has not scored the windows; the text says why."""


@dataclass(eq=False)
class _Waiting:
    """An example that waits for its scores, and the time of its arrival by the event loop's clock.

    Nobody waits for it any more when the future of its scores is cancelled.
    """

    windowed: Windowed
    scored: asyncio.Future[Scored]
    since: float


@dataclass(eq=False)
class _Batch:
    """Examples that wait, the steps that compute them, and the windows that are not completed."""

    waiting: Sequence[_Waiting]
    part: Part
    steps: Steps
    windows: int


class Batcher:
    """Collects examples and has them scored in batches, in the order in which they came.

    It is used in one event loop, and counts in ``metrics``. An example with more than
    ``batch_size`` windows is a batch of its own.
    """

    def __init__(self, batch_size: int, metrics: CollectorRegistry) -> None:
        self._batch_size = batch_size
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._next: _Waiting | None = None  # taken from the queue, too large for the last batch
        self._collecting = asyncio.Lock()
        self._step_began: list[float] = []  # of each process, by the clock of the event loop
        self.scored_at = -math.inf  # the last batch
        text = "Questions whose windows wait for a batch."
        Gauge("nq_queue_length", text, registry=metrics).set_function(self._length)
        self._windows = Counter(
            "nq_windows",
            "Windows of computed batches.",
            registry=metrics,
        )
        self._batch_windows = Histogram(
            "nq_batch_windows", "Windows of a batch.", registry=metrics, buckets=SIZES
        )

    async def score(self, windowed: Windowed) -> Scored:
        """Returns an example with its scores, or raises ``ScoringError``.

        If the caller is cancelled, what is not computed yet is left out.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(windowed, loop.create_future(), loop.time())
        self._queue.put_nowait(waiting)
        return await waiting.scored

    async def run(self, processes: Sequence[Scorer]) -> None:
        """Feeds batches to the processes, one thread each, until it is cancelled."""
        self._step_began = [math.inf] * len(processes)
        threads = ThreadPoolExecutor(len(processes), "nq-batcher")
        try:
            async with asyncio.TaskGroup() as group:
                for number, process in enumerate(processes):
                    group.create_task(self._run(number, process, threads))
        finally:
            threads.shutdown(wait=False)

    def is_stuck(self, limit_s: float) -> bool:
        """Returns whether no process has completed a step for so long, although all compute one."""
        since = asyncio.get_running_loop().time() - limit_s
        return bool(self._step_began) and max(self._step_began) < since

    def _length(self) -> int:
        return self._queue.qsize() + (self._next is not None)

    async def _run(self, number: int, process: Scorer, threads: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        batches = deque[_Batch]()
        while True:
            is_idle = not batches
            if is_idle or (self._length() and not self._collecting.locked()):
                async with self._collecting:
                    waiting = await self._next_batch(None if is_idle else loop.time())
                if waiting:
                    part = Part([one.windowed for one in waiting])
                    self._batch_windows.observe(len(part))
                    steps = process.steps(part.rows, part.examples)
                    batches.append(_Batch(waiting, part, steps, len(part)))
                    continue
            batch = batches.popleft()
            if all(one.scored.done() for one in batch.waiting):
                batch.steps.close()
                continue
            self._step_began[number] = loop.time()
            try:
                result = await loop.run_in_executor(threads, advance, batch.steps)
                self._on_step(batch, result)
            except Exception as error:
                log.error(
                    "a batch of %d questions is not scored: %s",
                    len(batch.waiting),
                    error,
                )
                for one in batch.waiting:
                    if not one.scored.done():
                        one.scored.set_exception(ScoringError(str(error)))
            else:
                if isinstance(result, int):
                    batches.append(batch)
            self._step_began[number] = math.inf

    def _on_step(self, batch: _Batch, result: int | Columns) -> None:
        """Counts the completed windows of a step; after the last one delivers the scores."""
        completed = result if isinstance(result, int) else batch.windows
        self._windows.inc(completed)
        batch.windows -= completed
        if isinstance(result, int):
            return
        self.scored_at = asyncio.get_running_loop().time()
        for one, scored in zip(
            batch.waiting,
            list(batch.part.scored(result)),
            strict=True,
        ):
            if not one.scored.done():
                one.scored.set_result(scored)

    async def _next_batch(self, deadline: float | None) -> list[_Waiting]:
        """Returns the next batch; without a deadline it waits for the first example."""
        batch = list[_Waiting]()
        windows = 0
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
