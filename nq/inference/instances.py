"""Instances: processes with the same model, each on its own cores, that score parts in parallel.

A process that dies is started again, and what it was to score is scored once more. The processes
end with the one that started them, however that ends, and a terminal's Ctrl-C does not reach them.

``multiprocessing`` would run a user's script without ``if __name__ == "__main__"`` again in each
process, and processes of ``concurrent.futures`` would outlive a parent that is killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any, NoReturn, Self

from nq import child, processor
from nq.errors import Error
from nq.inference.load import ScorerSpec, load_scorer
from nq.inference.profile import TENSORFLOW
from nq.inference.scorer import Counters, Progress, Rows, Scorer, Steps, advance, no_progress
from nq.model.runtime import import_tensorflow, thread_environment
from nq.records import Columns, Example
from nq.text import counted

log = logging.getLogger(__name__)

CODE = "from nq.inference.instances import run_instance; run_instance({})"
END_S, CLEANUP_S = 3.0, 2.0
FORGET = ()
"""Is sent in place of rows and examples that nobody waits for any more."""


class InstanceDiedError(Error):
    """The process of an instance has ended although the pool was not closed."""


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
        self.cores, self.parallel_parts = divided(processor.cores(), instances, threads), instances
        self.counters = Counters()
        self._lock, self._lines = threading.Lock(), set[tuple[str, str]]()
        self._idle: queue.SimpleQueue[_Instance] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(instances, "nq-instance")
        self.instances: list[_Instance] = []
        spec = replace(spec, threads=threads)
        try:
            for number, own in enumerate(self.cores, 1):
                shown = f"core{'s' * (len(own) > 1)} {', '.join(map(str, own))}"
                name = f"instance {number} of {instances} ({shown})"
                self.instances.append(_Instance(name, own, spec, self._log_once, self._add))
            first, *_ = [instance.load() for instance in self.instances]
        except BaseException:
            self.close()
            raise
        self.device, self.precision, self.batch_size, self.part_batches = first
        for instance in self.instances:
            self._idle.put(instance)

    def is_alive(self) -> bool:
        """Returns whether an instance has a process that has loaded the model."""
        return any(i._loaded is not None and i._process.poll() is None for i in self.instances)

    def submit(
        self, rows: Rows, examples: Sequence[Example], progress: Progress = no_progress
    ) -> Future[Columns]:
        """See ``Scorer.submit``."""
        return self._threads.submit(self.scores, rows, examples, progress)

    def scores(
        self, rows: Rows, examples: Sequence[Example] = (), progress: Progress = no_progress
    ) -> Columns:
        """See ``Scorer.scores``; one instance computes them."""
        instance = self._idle.get()
        try:
            return instance.scores(rows, examples, progress)
        finally:
            self._idle.put(instance)

    def close(self) -> None:
        """Ends the instances; what they have not scored fails."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for instance in self.instances:
            instance.terminate()
        end = time.monotonic() + END_S
        for instance in self.instances:
            instance.wait(end)
        self._threads.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _add(self, done: Counters) -> None:
        with self._lock:
            self.counters.add(done, len(self.cores))

    def _log_once(self, record: logging.LogRecord) -> None:
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
    n_threads, n_cores = instances * threads, len(processor.cores())
    if n_threads > n_cores:
        log.warning(
            "%s of %s on %s: they wait for each other; give fewer",
            *map(counted, (instances, threads, n_cores), ("instance", "thread", "core")),
        )


class _Instance(Scorer):
    """A process that scores the parts that one thread at a time sends."""

    def __init__(
        self,
        name: str,
        own_cores: Sequence[int],
        spec: ScorerSpec,
        on_log: Callable[[logging.LogRecord], None],
        on_step: Callable[[Counters], None],
    ) -> None:
        self.name, self.cores, self._spec = name, own_cores, spec
        self._on_log, self._on_step, self._numbers = on_log, on_step, count()
        self._lock, self._is_closed = threading.Lock(), False
        self._start()

    def _start(self) -> None:
        """Starts a process, which loads the model."""
        self._loaded: Any = None
        variables = thread_environment(self._spec.threads or 1)
        before = os.sched_getaffinity(0)
        with self._lock:
            if self._is_closed:
                raise InstanceDiedError("the pool of instances is closed")
            os.sched_setaffinity(0, self.cores)  # of this thread; the process inherits it
            try:
                self._process, self._connection = child.start(CODE, variables)
            finally:
                os.sched_setaffinity(0, before)
        self._send((self._spec, logging.getLogger("nq").getEffectiveLevel()))

    def load(self) -> Any:
        """Waits for the model; returns device, precision, batch size and part batches."""
        try:
            return self._load()
        except InstanceDiedError as error:
            self._restart(error)
            return self._load()

    def steps(self, rows: Rows, examples: Sequence[Example]) -> Steps:
        """See ``Scorer.steps``; if the process dies, another one begins again, but only once."""
        number, process, may_die = next(self._numbers), None, True
        result, completed, reported = 0, 0, 0
        try:
            while True:
                try:
                    self._load()
                    is_new, process = process is not self._process, self._process
                    completed = 0 if is_new else completed
                    self._send((number, (rows, examples) if is_new else None))
                    result, done = self._receive()
                except InstanceDiedError as error:
                    if not may_die:
                        raise
                    may_die = False
                    self._restart(error)
                    continue
                self._on_step(done)
                if not isinstance(result, int):
                    columns: Columns = result
                    return columns
                completed += result
                yield max(0, completed - reported)
                reported = max(completed, reported)
        finally:
            if isinstance(result, int):
                self._send((number, FORGET))

    def _restart(self, error: InstanceDiedError) -> None:
        if self._is_closed:
            raise error
        log.warning("%s: it is started again", error)
        self._start()

    def _load(self) -> Any:
        if self._process.poll() is not None:
            self._raise_died()
        self._loaded = self._loaded or self._receive()
        return self._loaded

    def _send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # it has died: ``_receive`` notices
            self._connection.send(message)

    def _receive(self) -> Any:
        """Returns the answer of the process, or raises the exception that is the answer."""
        try:
            while isinstance(answer := self._connection.recv(), logging.LogRecord):
                self._on_log(answer)
        except (EOFError, OSError) as error:
            self._process.kill()  # it may only have broken the connection
            self._raise_died(error)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _raise_died(self, error: Exception | None = None) -> NoReturn:
        code = self._process.wait()
        killed = f"was killed by {signal.Signals(-code).name}" if code < 0 else ""
        end = killed or f"ended with exit code {code}"
        raise InstanceDiedError(f"{self.name} {end}") from error

    def terminate(self) -> None:
        """Makes the process end."""
        with self._lock:
            self._is_closed = True
            self._process.terminate()

    def wait(self, end: float) -> None:
        """Waits for the process to end; kills it at the time ``end`` of the monotonic clock."""
        try:
            self._process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def run_instance(number: int) -> None:
    """Loads a scorer and scores what the pool sends to the socket descriptor ``number``."""
    for signals in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signals, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt, OSError):
        _answer_all(Connection(number))
    os._exit(0)  # the end of the interpreter would wait for the threads of libraries


def _answer_all(connection: Connection[Any, Any]) -> None:
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()
    sending, begun = threading.Lock(), dict[int, Steps]()

    def read() -> None:  # in a thread, so that the end of the pool is noticed during computation
        try:
            while True:
                received.put(connection.recv())
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(CLEANUP_S)
            os._exit(0)

    def send(message: Any) -> None:
        with sending:
            connection.send(message)

    threading.Thread(target=read, daemon=True).start()
    spec, level = received.get()
    ours = logging.getLogger("nq")
    ours.setLevel(level)
    ours.propagate = False
    ours.addHandler(QueueHandler(SimpleNamespace(put_nowait=send)))
    try:
        if spec.profile.changes.engine == TENSORFLOW:
            import_tensorflow(spec.threads)
        scorer = load_scorer(spec)
    except Exception as error:
        send(portable(error))
        return
    send((scorer.device, scorer.precision, scorer.batch_size, scorer.part_batches))
    while True:
        number, work = received.get()
        if work == FORGET:
            begun.pop(number, None)
            continue
        before = replace(scorer.counters)
        try:
            steps = scorer.steps(*work) if work else begun.pop(number)
            result = advance(steps)
            if isinstance(result, int):
                begun[number] = steps
            answer: Any = result, scorer.counters - before
        except Exception as error:
            answer = portable(error)
        send(answer)


def portable(error: Exception) -> Exception:
    """Returns an exception that any process can read, with the traceback as a note.

    Its class is the nearest one that is built in or of ``nq.errors``.
    """
    for kind in type(error).__mro__:
        if kind.__module__ in ("builtins", "nq.errors"):
            with contextlib.suppress(TypeError):  # such as UnicodeDecodeError: more arguments
                result: Exception = kind(str(error))
                break
    result.add_note(f"in an instance:\n{''.join(traceback.format_exception(error))}")
    return result
