"""One instance of a pool: its process, and the thread that sends it what is to be scored."""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

from nq.child import python_path
from nq.errors import Error
from nq.inference import cores
from nq.inference.messages import Failure, LogLine, Ready, Scored, Start, Windows
from nq.inference.pool_state import CLOSED, PoolState, Task
from nq.model.runtime import thread_environment

log = logging.getLogger(__name__)

MODULE = "nq.inference.instance"
POLL_S = 0.5
"""Seconds after which the death of an instance without work is noticed."""
BACKOFF_S, MAX_BACKOFF_S = 0.5, 30.0


class InstanceDiedError(Error):
    """The process of an instance has ended although nobody told it to."""


class _NotLoadedError(Exception):
    """An instance cannot load its model, for this reason."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Instance:
    """One process, with a thread that sends it tasks of the pool, one at a time.

    Args:
        pool: what it shares with the others.
        number: from 0 on.

    Attributes:
        ready: receives what the process reports once its model is loaded for the first time.
        process: the process that runs now; ``None`` before the first one.
    """

    def __init__(self, pool: PoolState, number: int) -> None:
        self.pool, self.cores = pool, pool.cores[number]
        self.name = f"instance {number + 1} of {len(pool.cores)} ({cores.shown(self.cores)})"
        self.ready: Future[Ready] = Future()
        self.process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any]
        self._starting = threading.Lock()
        self._task: Task | None = None
        self._deaths = 0
        self._thread = threading.Thread(target=self._run, name=f"nq-instance-{number}", daemon=True)
        self._thread.start()

    def terminate(self) -> None:
        """Tells the process to end."""
        with self._starting:
            if self.process is not None:
                self.process.terminate()

    def join(self, end: float) -> None:
        """Waits for the process until the moment ``end``, kills it then, and ends the thread."""
        if self.process is not None:
            try:
                self.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._thread.join()

    def _run(self) -> None:
        """Works until the pool is closed or the process has died too often."""
        while not self.pool.closed.is_set():
            try:
                self._start()
                self._work()
            except (EOFError, OSError) as error:
                self._after_death(InstanceDiedError(f"{self.name} {self._ending(error)}"))
            except _NotLoadedError as error:
                if not self.ready.done():
                    self._give_up(error.reason)
                    break
                text = f"{self.name} cannot be started again: {error.reason}"
                self._after_death(InstanceDiedError(text))
            except Exception as error:  # such as one of a progress that the caller has given
                self._give_up(error)
                break
        self._fail_task(Error(CLOSED))

    def _start(self) -> None:
        """Starts a process and waits until it has loaded its model.

        Raises:
            EOFError, OSError: it died, or cannot be started.
            _NotLoadedError: the model cannot be loaded.
        """
        spec = self.pool.spec
        threads = thread_environment(spec.threads or 1)
        ours, theirs = socket.socketpair()
        self._connection = Connection(ours.detach())
        with self._starting, theirs:
            if self.pool.closed.is_set():
                return
            self.process = None
            self.process = subprocess.Popen(
                # -P: no module of the working folder
                [sys.executable, "-P", "-m", MODULE, *map(str, (theirs.fileno(), *self.cores))],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **threads, "PYTHONPATH": python_path()},
                start_new_session=True,  # a terminal sends Ctrl-C to all processes of a session
            )
        self._connection.send(Start(spec, logging.getLogger("nq").getEffectiveLevel()))
        ready = self._receive()
        if isinstance(ready, Failure):
            raise _NotLoadedError(ready.exception())
        if not self.ready.done():
            self.ready.set_result(ready)

    def _work(self) -> None:
        """Scores tasks until the pool is closed.

        Raises:
            EOFError, OSError: the process died.
        """
        while not self.pool.closed.is_set():
            self._task = self._task or self._next()
            if self._task is None:
                return
            if self.process is None or self.process.poll() is not None:
                raise EOFError  # it died without work
            self._task.begun = True
            self._connection.send(self._task.part)
            answer = self._receive()
            task, self._task = self._task, None
            if isinstance(answer, Failure):
                task.future.set_exception(answer.exception())
                continue
            self.pool.count(answer.counters)
            self._check_threads(answer)
            task.future.set_result(answer.columns)
            if self.pool.restarts is None:
                self._deaths = 0

    def _next(self) -> Task | None:
        """Returns the next task, as soon as there is one; ``None`` once the pool is closed."""
        while True:
            try:
                task = self.pool.tasks.get(timeout=POLL_S)
            except queue.Empty:
                if self.process is None or self.process.poll() is not None:
                    raise EOFError from None
                continue
            if task is None or task.future.set_running_or_notify_cancel():
                return task

    def _receive(self) -> Any:
        """Returns the next message that is neither progress nor a line for the log."""
        while True:
            message = self._connection.recv()
            if isinstance(message, Windows):
                if self._task is not None:
                    self._task.report(message.completed)
            elif isinstance(message, LogLine):
                self.pool.log_once(message)
            else:
                return message

    def _check_threads(self, scored: Scored) -> None:
        if scored.threads_elsewhere:
            text = "the engine has threads that may run on cores of other instances"
            self.pool.log_once(LogLine(__name__, logging.WARNING, text))

    def _ending(self, error: Exception) -> str:
        """Returns how the process ended, in words; ends it if it only broke the connection."""
        if self.process is None:
            return f"cannot be started: {error}"
        self.process.kill()
        code = self.process.wait()
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def _after_death(self, error: InstanceDiedError) -> None:
        """Decides what becomes of the instance and of its task, and waits before it starts."""
        pool, self._deaths = self.pool, self._deaths + 1
        if pool.closed.is_set():
            return
        if pool.restarts is not None and self._deaths > pool.restarts:
            restarts = f"{pool.restarts} restart{'s' * (pool.restarts != 1)}"
            self._give_up(InstanceDiedError(f"{error}, after {restarts}"))
            pool.closed.wait()
            return
        if self._task is not None and self._task.begun and not pool.resubmit:
            self._fail_task(error)
        log.warning("%s: it is started again", error)
        if pool.restarts is None:
            pool.closed.wait(min(MAX_BACKOFF_S, BACKOFF_S * 2 ** (self._deaths - 1)))

    def _give_up(self, error: Exception) -> None:
        """Makes the task of the instance fail, and all other tasks of the pool."""
        self._fail_task(error)
        if not self.ready.done():
            self.ready.set_exception(error)
        self.pool.fail_all(error if isinstance(error, Error) else Error(str(error)))

    def _fail_task(self, error: Exception) -> None:
        if self._task is not None:
            self._task.future.set_exception(error)
            self._task = None
