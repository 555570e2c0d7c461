"""Instances: processes of one model, each on cores of its own, that score parts beside each other.

An instance that dies is started again. What it was to score is sent again or fails, as the pool is
told; an exception in an instance is raised here. The instances end with the process of the pool,
however that ends, and a terminal's Ctrl-C reaches that process alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Self

from nq.errors import Error
from nq.inference import cores
from nq.inference.instance_thread import Instance, InstanceDiedError
from nq.inference.load import ScorerSpec
from nq.inference.messages import Score
from nq.inference.pool_state import CLOSED, PoolState, Task
from nq.inference.scorer import Progress, Rows, no_progress
from nq.records import Columns, Example

__all__ = ["InstanceDiedError", "InstancePool"]

END_S = 3.0


class InstancePool:
    """Scores parts in several processes; a ``Scorer`` whose parts may be submitted.

    The constructor returns when all instances have loaded their model. A pool may be used from
    several threads. It is a context manager; ``close`` ends the instances.

    Args:
        spec: of the scorer of each instance.
        instances: how many there are.
        threads: of each instance, which are bound to as many cores.
        restarts: how often each instance may be started again before the pool is of no more use;
            ``None`` for any number of times, after a time that doubles until it has scored a part.
        resubmit: whether what a dead instance was scoring is scored again, instead of failing with
            ``InstanceDiedError``.

    Attributes:
        counters: windows of all instances. Seconds are the mean of the instances, that is the
            share of the pool's time, because they work at the same time.
        cores: of each instance.

    Raises:
        Error: a package is missing, or an instance died too often.
        FileNotFoundError, ValueError: the model is missing or of no use.
    """

    network = None

    def __init__(
        self,
        spec: ScorerSpec,
        instances: int,
        threads: int,
        restarts: int | None = 1,
        resubmit: bool = True,
    ) -> None:
        cores.warn_if_too_few(instances, threads)
        self.cores = cores.divided(cores.available(), instances, threads)
        self._state = PoolState(replace(spec, threads=threads), self.cores, restarts, resubmit)
        self.counters = self._state.counters
        self._instances = [Instance(self._state, number) for number in range(instances)]
        try:
            (first, *_) = [instance.ready.result() for instance in self._instances]
        except BaseException:
            self.close()
            raise
        self.device, self.precision = first.device, first.precision
        self.batch_size, self.part_batches = first.batch_size, first.part_batches

    def __len__(self) -> int:
        return len(self.cores)

    def submit(
        self, rows: Rows, examples: Sequence[Example], progress: Progress = no_progress
    ) -> Future[Columns]:
        """Returns a future of what ``scores`` returns.

        Args:
            rows, examples: see ``Scorer.scores``.
            progress: receives completed windows, in a thread of the pool.

        Raises:
            Error: the pool is closed, or an instance died too often.
        """
        task = Task(Score(rows, examples), progress)
        self._state.put(task)
        return task.future

    def scores(
        self, rows: Rows, examples: Sequence[Example], progress: Progress = no_progress
    ) -> Columns:
        """See ``Scorer.scores``; one instance computes them."""
        return self.submit(rows, examples, progress).result()

    def processes(self) -> list[int]:
        """Returns the number of the process of each instance; a dead one is left out."""
        return [i.process.pid for i in self._instances if i.process and i.process.poll() is None]

    def close(self) -> None:
        """Ends the instances; what they have not scored fails."""
        self._state.fail_all(Error(CLOSED))
        self._state.closed.set()
        for instance in self._instances:
            self._state.tasks.put(None)
            instance.terminate()
        end = time.monotonic() + END_S
        for instance in self._instances:
            instance.join(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
