"""What the instances of a pool share: the tasks that wait, the counters, the lines of the log."""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from nq.errors import Error
from nq.inference.load import ScorerSpec
from nq.inference.messages import LogLine, Score
from nq.inference.scorer import Counters, Progress
from nq.records import Columns

CLOSED = "the pool of instances is closed"
LINES = 100
"""So many lines of the instances are remembered, so that each is logged once for all of them."""


@dataclass(eq=False)
class Task:
    """What is to be scored.

    Args:
        part: is sent to an instance.
        progress: receives completed windows.
        future: receives the columns.
        completed: windows that ``progress`` has received.
        begun: whether an instance has received the part.
    """

    part: Score
    progress: Progress
    future: Future[Columns] = field(default_factory=Future)
    completed: int = 0
    begun: bool = False

    def report(self, completed: int) -> None:
        """Reports completed windows; a second instance completes those of the first one again."""
        if completed > self.completed:
            self.progress(completed - self.completed)
            self.completed = completed


class PoolState:
    """What the instances of a pool share; see ``nq.inference.instances.InstancePool``.

    Args:
        spec: of the scorer of each instance, with its threads.
        cores: of each instance.
        restarts, resubmit: see ``InstancePool``.

    Attributes:
        tasks: those that no instance has taken; ``None`` ends an instance.
        closed: whether the pool is closed.
        counters: of all instances.
    """

    def __init__(
        self,
        spec: ScorerSpec,
        cores: list[tuple[int, ...]],
        restarts: int | None,
        resubmit: bool,
    ) -> None:
        self.spec, self.cores, self.restarts, self.resubmit = spec, cores, restarts, resubmit
        self.tasks: queue.Queue[Task | None] = queue.Queue()
        self.closed, self.counters = threading.Event(), Counters()
        self._lines: deque[LogLine] = deque(maxlen=LINES)
        self._lock = threading.Lock()
        self._error: Error | None = None

    def put(self, task: Task) -> None:
        """Adds a task.

        Raises:
            Error: the pool is closed, or an instance died too often.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            self.tasks.put(task)

    def fail_all(self, error: Error) -> None:
        """Makes all tasks that wait, and all that come, fail."""
        with self._lock:
            self._error = self._error or error
            while not self.tasks.empty():
                task = self.tasks.get()
                if task is not None and task.future.set_running_or_notify_cancel():
                    task.future.set_exception(self._error)

    def count(self, done: Counters) -> None:
        """Adds what an instance has done to the counters; of its seconds, its share."""
        with self._lock:
            for name, value in vars(done).items():
                share = value / len(self.cores) if name.endswith("_s") else value
                setattr(self.counters, name, getattr(self.counters, name) + share)

    def log_once(self, line: LogLine) -> None:
        """Logs a line of an instance, unless another one has logged it."""
        with self._lock:
            is_new = line not in self._lines
            self._lines.append(line)
        if is_new:
            logging.getLogger(line.name).log(line.level, "%s", line.text)
