"""A process that serves calls of the process that starts it, and ends with it.

However the parent ends, the system closes its end of their connection. A thread of the worker that
waits for the next message notices that, interrupts what is computed, and ends the process, with
what libraries have started in it, ``CLEANUP_S`` later. That is also how ``Worker.end`` ends it.
Neither a terminal's Ctrl-C nor SIGTERM, which a service manager sends to all processes of a
service, ends a worker: the parent decides. Worker processes that a library starts end the same way
(``end_with``).

``multiprocessing`` would run a user's script without ``if __name__ == "__main__"`` again in each
process, and processes of ``concurrent.futures`` would outlive a parent that is killed.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import queue
import resource
import runpy
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from logging.handlers import QueueHandler
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import psutil

from nq.errors import Error

ROOT = str(Path(__file__).resolve().parents[1])  # from where this package is imported
CLEANUP_S = 2.0
END_S = 3.0
"""Seconds that a worker has to clean up; after ``END_S`` it is killed."""
READY = "ready"
ITEM = "item"
RESULT = "result"
ERROR = "error"
LOG = "log"
"""The kinds of messages of a worker."""

OnLog = Callable[[logging.LogRecord], object]


class WorkerDiedError(Error):
    """The process of a worker has ended although nobody ended it."""


@dataclass(frozen=True)
class Limits:
    """What one call may take: seconds of the processor, and bytes beside those of the libraries."""

    cpu_s: float
    memory_bytes: int


def python(*arguments: str, **variables: str) -> dict[str, Any]:
    """Returns command and environment of a Python process, as ``subprocess`` takes them.

    It finds this package. Neither it nor the processes that it starts run Python files of the
    working folder. The ``variables`` are added to the environment of this process.
    """
    path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
    own = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}  # the second is python -P
    return {"args": [sys.executable, *arguments], "env": {**os.environ, **variables, **own}}


class Worker:
    """A process that calls a function with the values that it receives, one at a time.

    Args:
        target: the function. If it is a generator function, its values are those of a stream.
        name: what errors and lists of processes call it.
        cores: those that it may use, by default all.
        variables: are added to its environment.
        limits: of each call; a call that takes more ends the process.
        on_log: receives what the process logs; by default nobody does.
        output: where it writes what it prints, by default nowhere.
    """

    def __init__(
        self,
        target: Callable[[Any], Any],
        *,
        name: str,
        cores: Sequence[int] | None = None,
        variables: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        on_log: OnLog | None = None,
        output: int | None = subprocess.DEVNULL,
    ) -> None:
        self.name = name
        self._on_log = on_log
        self._is_ready = False
        self._connection, theirs = Pipe()
        with theirs:
            code = f"from nq.worker import serve; serve({theirs.fileno()})  # {name}"
            self.process = subprocess.Popen(
                **python("-c", code, **(variables or {})),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a terminal sends Ctrl-C to all of a session
            )
        if cores is not None:
            os.sched_setaffinity(self.process.pid, cores)  # of its only thread so far
        level = logging.getLogger("nq").getEffectiveLevel() if on_log else None
        self.send((target, limits, level))

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until the process is ready for calls; see ``call`` for the errors."""
        if not self._is_ready:
            self._receive(timeout_s)

    def call(self, value: Any, timeout_s: float | None = None) -> Any:
        """Returns what the target returns for a value, or raises what it raises.

        Raises:
            WorkerDiedError: the process has died, or was killed because the call took longer.
        """
        self.wait()
        self.send(value)
        return self._receive(timeout_s)[1]

    def stream(self, value: Any) -> Iterator[Any]:
        """Returns the values of a generator function, which the process begins to compute."""
        self.send(value)
        return self._items()

    def _items(self) -> Iterator[Any]:
        self.wait()
        while (message := self._receive(None))[0] == ITEM:
            yield message[1]

    def has_message(self) -> bool:
        """Returns whether the next value of a stream, its end or an error has arrived."""
        return self._connection.poll()

    def send(self, value: Any) -> None:
        """Sends a value; that the process has died is noticed when something is received."""
        with contextlib.suppress(OSError):
            self._connection.send(value)

    def _receive(self, timeout_s: float | None) -> tuple[str, Any]:
        try:
            while True:
                if not self._connection.poll(timeout_s):
                    self.process.kill()
                kind, value = self._connection.recv()
                if kind != LOG:
                    break
                if self._on_log:
                    self._on_log(value)
        except (EOFError, OSError) as error:
            self.process.kill()  # it may only have broken the connection
            code = self.process.wait()
            killed = f"was killed by {signal.Signals(-code).name}" if code < 0 else ""
            end = killed or f"ended with exit code {code}"
            raise WorkerDiedError(f"{self.name} {end}") from error
        self._is_ready = True
        if kind == ERROR:
            raise value
        return kind, value

    def close(self) -> None:
        """Lets the process end, which then has ``CLEANUP_S``."""
        self._connection.close()

    def end(self, grace_s: float = END_S) -> None:
        """Ends the process; it is killed if it takes longer."""
        self.close()
        try:
            self.process.wait(max(0.0, grace_s))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# --- in the process -----------------------------------------------------------------------------


def serve(number: int) -> NoReturn:
    """Answers the calls that the socket with the descriptor ``number`` receives."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection: Connection[Any, Any] = Connection(number)
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:  # in a thread, so that the end of the parent is noticed at any moment
        try:
            while True:
                received.put(connection.recv())
        finally:
            os.killpg(0, signal.SIGINT)  # also what libraries have started, such as servers
            time.sleep(CLEANUP_S)
            os.killpg(0, signal.SIGKILL)

    threading.Thread(target=read, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt, OSError):
        _serve(connection, received)
    os.killpg(0, signal.SIGKILL)  # the end of the interpreter would wait for threads of libraries
    os._exit(0)


def end_with(path: str) -> None:
    """Ends this process when nobody has the named pipe ``path`` open for writing any more."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            with contextlib.suppress(BlockingIOError):  # somebody has it open
                os.read(pipe, 1)
                os._exit(1)
            select.select([pipe], [], [])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _serve(connection: Connection[Any, Any], received: queue.SimpleQueue[Any]) -> None:
    sending = threading.Lock()

    def send(kind: str, value: Any = None) -> None:
        with sending:
            connection.send((kind, value))

    target, limits, level = received.get()
    ours = logging.getLogger("nq")
    ours.propagate = False
    if level is None:
        ours.addHandler(logging.NullHandler())
    else:
        ours.setLevel(level)
        ours.addHandler(QueueHandler(SimpleNamespace(put_nowait=lambda one: send(LOG, one))))
    libraries_bytes = psutil.Process().memory_info().vms
    send(READY)
    while True:
        value = received.get()
        if limits:
            _limit(resource.RLIMIT_AS, libraries_bytes + limits.memory_bytes)
            _limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + limits.cpu_s))
        try:
            result = target(value)
            if isinstance(result, Iterator):
                for item in result:
                    send(ITEM, item)
                result = None
            answer = RESULT, result
        except Exception as error:
            if limits and isinstance(error, MemoryError):
                raise
            answer = ERROR, portable(error)
        send(*answer)


def _limit(kind: int, value: int) -> None:
    """Sets a soft limit, or the hard one if that is lower."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def portable(error: Exception) -> Exception:
    """Returns an exception that any process can read, with the traceback as a note.

    One of a library is replaced by the nearest class that is built in or ours.
    """
    result = error
    for kind in type(error).__mro__:
        if kind.__module__.partition(".")[0] in ("builtins", "nq"):
            with contextlib.suppress(TypeError):  # a class that takes more arguments
                result = error if kind is type(error) else kind(str(error))
                break
    result.add_note(f"in a worker:\n{''.join(traceback.format_exception(error))}")
    return result


def run_module(arguments: Sequence[str]) -> int:
    """Runs a module as ``python -m`` does; returns its exit code."""
    sys.argv[:] = arguments
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
