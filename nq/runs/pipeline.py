"""Scores parts in several instances at once, while this process reads and decides.

One part more than there are instances is under way, so that none waits for the next. Examples come
out in the order of the input; their scores are stored as soon as they are there, so that an
interrupted run loses only what was under way.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

from nq.inference.instances import InstancePool
from nq.inference.scorer import Part, Progress, no_progress, parts
from nq.records import Columns, Example, Scores
from nq.runs.phases import PREDICT
from nq.runs.score_store import SplitPart, StoringScorer


@dataclass(eq=False)
class _Pending:
    """A part that is under way.

    Args:
        part: the part.
        split: which of its examples are computed.
        future: receives their scores.
        columns: of the whole part, once they are stored.
    """

    part: Part
    split: SplitPart
    future: Future[Columns]
    columns: Columns | None = None


def score_in_instances(
    scorer: StoringScorer,
    pool: InstancePool,
    windows: Iterator[tuple[Example, Columns]],
    progress: Progress = no_progress,
) -> Iterator[tuple[Example, Scores]]:
    """Yields what ``score_examples`` yields; the parts are the same.

    While instances compute, all time counts as ``PREDICT``, that of reading and deciding too.

    Args:
        scorer: stores the scores; it wraps the pool.
        pool: computes the scores.
        windows: each example with the rows of its windows.
        progress: receives completed windows, in this thread.
    """
    pipeline = _Pipeline(scorer, pool, progress)
    for part in parts(windows, pool):
        pipeline.submit(part)
        while len(pipeline) > len(pool):
            yield from pipeline.first()
    while len(pipeline):
        yield from pipeline.first()


class _Pipeline:
    """The parts that are under way, in order; see ``score_in_instances``."""

    def __init__(self, scorer: StoringScorer, pool: InstancePool, progress: Progress) -> None:
        self.scorer, self.pool, self.progress = scorer, pool, progress
        self._pending: deque[_Pending] = deque()
        self._events: queue.SimpleQueue[int] = queue.SimpleQueue()

    def __len__(self) -> int:
        return len(self._pending)

    def submit(self, part: Part) -> None:
        """Gives to the pool what of a part is not in the store."""
        split = self.scorer.split(part.rows, part.examples, self.progress)
        future: Future[Columns] = Future()
        if split.new:
            future = self.pool.submit(split.new_rows, split.new, self._events.put)
            future.add_done_callback(lambda _: self._events.put(0))
        else:
            future.set_result({})
        self._pending.append(_Pending(part, split, future))
        self._cover()

    def first(self) -> Iterator[tuple[Example, Scores]]:
        """Waits for the first part, and removes it; returns its examples with their scores."""
        self._store()
        while (columns := self._pending[0].columns) is None:
            self.progress(self._events.get())
            self._store()
        while not self._events.empty():  # the windows of a part are reported before its scores
            self.progress(self._events.get())
        first = self._pending.popleft()
        self._cover()
        return first.part.scored(columns)

    def _store(self) -> None:
        """Stores the scores of all parts that are done."""
        for one in self._pending:
            if one.columns is None and one.future.done():
                one.columns = self.scorer.complete(one.split, one.future.result())

    def _cover(self) -> None:
        under_way = any(not one.future.done() for one in self._pending)
        self.scorer.timer.cover(PREDICT if under_way else None)
