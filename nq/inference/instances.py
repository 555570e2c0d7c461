"""Instances: processes with the same model, each on its own cores, that score parts in parallel.

A process that dies is started again, and what it was to score is scored once more.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import Any

from nq import processor
from nq.inference.load import ScorerSpec, load_scorer
from nq.inference.profile import TENSORFLOW
from nq.inference.scorer import Counters, Progress, Rows, Scorer, Steps, advance, no_progress
from nq.model.runtime import import_tensorflow, thread_environment
from nq.records import Columns, Example
from nq.text import counted
from nq.worker import END_S, Worker, WorkerDiedError

log = logging.getLogger(__name__)

LOAD = "load"
FORGET = "forget"
"""Are sent in place of rows and examples: to load the model, and if nobody waits for a part."""


class InstancePool(Scorer):
    """A ``Scorer`` whose parts several processes score.

    The constructor returns when all instances have loaded their model, each with as many threads
    as ``cores`` of its own. A pool may be used from several threads, and in place of it each of its
    ``instances`` from one. Seconds in ``counters`` are the mean of the instances, because they work
    at the same time.
    """

    network = None

    def __init__(self, spec: ScorerSpec, instances: int, threads: int) -> None:
        warn_if_too_few_cores(instances, threads)
        self.cores = divided(processor.cores(), instances, threads)
        self.parallel_parts = instances
        self.counters = Counters()
        self._lock = threading.Lock()
        self._lines = set[tuple[str, str]]()
        self._idle: queue.SimpleQueue[_Instance] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(instances, "nq-instance")
        self.instances: list[_Instance] = []
        spec = replace(spec, threads=threads)
        try:
            for number, own in enumerate(self.cores, 1):
                word = "core" if len(own) == 1 else "cores"
                name = f"instance {number} of {instances} ({word} {', '.join(map(str, own))})"
                self.instances.append(_Instance(self, name, own, spec))
            first, *_ = [instance.load() for instance in self.instances]
        except BaseException:
            self.close()
            raise
        self.device, self.precision, self.batch_size, self.part_batches = first
        for instance in self.instances:
            self._idle.put(instance)

    def is_alive(self) -> bool:
        """Returns whether an instance has a process that has loaded the model."""
        return any(one.loaded is not None and one.worker.is_alive for one in self.instances)

    def submit(
        self, rows: Rows, examples: Sequence[Example], progress: Progress = no_progress
    ) -> Future[Columns]:
        return self._threads.submit(self.scores, rows, examples, progress)

    def steps(self, rows: Rows, examples: Sequence[Example]) -> Steps:
        """See ``Scorer.steps``; one instance computes them."""
        instance = self._idle.get()
        try:
            return (yield from instance.steps(rows, examples))
        finally:
            self._idle.put(instance)

    def close(self) -> None:
        """Ends the instances; what they have not scored fails."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for instance in self.instances:
            instance.close()
        end = time.monotonic() + END_S
        for instance in self.instances:
            instance.worker.end(end - time.monotonic())
        self._threads.shutdown()

    def count(self, done: Counters) -> None:
        """Counts what an instance has done."""
        with self._lock:
            self.counters.add(done, len(self.cores))

    def log_once(self, record: logging.LogRecord) -> None:
        """Logs a record of an instance, unless another one has logged the same."""
        line = record.name, record.getMessage()
        with self._lock:
            is_new = line not in self._lines
            self._lines.add(line)
        if is_new:
            logging.getLogger(record.name).handle(record)


def divided(cores: tuple[int, ...], instances: int, threads: int) -> list[tuple[int, ...]]:
    """Returns the cores of each instance, as many as it has threads.

    They are disjoint as long as there are enough; then the first cores are shared.

    >>> divided((0, 1, 2, 3), 2, 2), divided((4, 6), 3, 1), divided((4, 6), 1, 3)
    ([(0, 1), (2, 3)], [(4,), (6,), (4,)], [(4, 6)])
    """
    numbers = [range(i * threads, (i + 1) * threads) for i in range(instances)]
    return [tuple(sorted({cores[n % len(cores)] for n in some})) for some in numbers]


def warn_if_too_few_cores(instances: int, threads: int) -> None:
    """Logs a warning if this process may use fewer cores than there are threads."""
    n_threads = instances * threads
    n_cores = len(processor.cores())
    if n_threads > n_cores:
        log.warning(
            "%s of %s on %s: they wait for each other; give fewer",
            counted(instances, "instance"),
            counted(threads, "thread"),
            counted(n_cores, "core"),
        )


class _Instance(Scorer):
    """A process that scores the parts that one thread at a time sends."""

    def __init__(
        self, pool: InstancePool, name: str, cores: Sequence[int], spec: ScorerSpec
    ) -> None:
        self.pool = pool
        self.name = name
        self.cores = cores
        self._spec = spec
        self._numbers = count()
        self._lock = threading.Lock()
        self._is_closed = False
        self._start()

    def _start(self) -> None:
        self.loaded: Any = None
        with self._lock:
            if self._is_closed:
                raise WorkerDiedError("the pool of instances is closed")
            self.worker = Worker(
                _Steps(self._spec),
                name=self.name,
                cores=self.cores,
                variables=thread_environment(self._spec.threads or 1),
                on_log=self.pool.log_once,
            )

    def load(self) -> Any:
        """Waits for the model; returns device, precision, batch size and part batches."""
        try:
            return self._load()
        except WorkerDiedError as error:
            self._restart(error)
            return self._load()

    def steps(self, rows: Rows, examples: Sequence[Example]) -> Steps:
        """See ``Scorer.steps``; if the process dies, another one begins again, but only once."""
        number = next(self._numbers)
        worker = None
        may_die = True
        result = 0
        completed = 0
        reported = 0
        try:
            while True:
                try:
                    self._load()
                    is_new = worker is not self.worker
                    worker = self.worker
                    completed = 0 if is_new else completed
                    work = (rows, examples) if is_new else None
                    result, done = worker.call((number, work))
                except WorkerDiedError as error:
                    if not may_die:
                        raise
                    may_die = False
                    self._restart(error)
                    continue
                self.pool.count(done)
                if not isinstance(result, int):
                    columns: Columns = result
                    return columns
                completed += result
                yield max(0, completed - reported)
                reported = max(completed, reported)
        finally:
            if isinstance(result, int):
                with contextlib.suppress(WorkerDiedError):
                    self.worker.call((number, FORGET))

    def _restart(self, error: WorkerDiedError) -> None:
        if self._is_closed:
            raise error
        log.warning("%s: it is started again", error)
        self._start()

    def _load(self) -> Any:
        self.loaded = self.loaded or self.worker.call((0, LOAD))
        return self.loaded

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self.worker.close()


class _Steps:
    """What a process of an instance does with a message: it loads, computes a step, or forgets."""

    def __init__(self, spec: ScorerSpec) -> None:
        self._spec = spec
        self._begun = dict[int, Steps]()
        self._scorer: Any = None

    def __call__(self, message: tuple[int, Any]) -> Any:
        number, work = message
        if work == LOAD:
            if self._spec.profile.changes.engine == TENSORFLOW:
                import_tensorflow(self._spec.threads)
            self._scorer = scorer = load_scorer(self._spec)
            return scorer.device, scorer.precision, scorer.batch_size, scorer.part_batches
        if work == FORGET:
            self._begun.pop(number, None)
            return None
        before = replace(self._scorer.counters)
        steps = self._scorer.steps(*work) if work else self._begun.pop(number)
        result = advance(steps)
        if isinstance(result, int):
            self._begun[number] = steps
        return result, self._scorer.counters - before
