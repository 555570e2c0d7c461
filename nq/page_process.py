"""A process that reads pages that other people made, within limits of time and memory.

A page that takes more ends the process, and a new one is started at once: a fresh Python, because
a fork would copy threads and locks. Its start counts for no page. It ends with its parent; a
terminal's Ctrl-C does not reach it.
"""

import math
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import psutil

from nq import child

START_S, MEMORY_BYTES = 60.0, 900 << 20
"""Seconds for the start; memory of a page, without that of the libraries: in all less than 1 GB."""
T = TypeVar("T")


class PageProcess:
    """Calls functions that read pages in a process; one call at a time, from any thread.

    Args:
        limit_s: seconds of the processor for a call, which may wait as long again.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s, self._lock = limit_s, threading.Lock()
        self._start()

    def _start(self) -> None:
        call = f"from nq.page_process import answer_calls; answer_calls({{}}, {self._limit_s})"
        variables = {"OPENBLAS_NUM_THREADS": "1"}
        self._process, self._connection = child.start(call, variables, subprocess.DEVNULL)

    def read(self, name: str, function: Callable[..., T], *arguments: Any) -> T:
        """Returns what a function of a module returns in the process, or raises what it raises.

        ``ValueError`` says that what the error calls ``name`` takes too much time or memory.
        """
        with self._lock:
            if self._process.poll() is not None:
                self._start()
            try:
                self._connection.send((function, arguments))
                for limit_s in (START_S, 2 * self._limit_s):  # until the call begins, and ends
                    if not self._connection.poll(limit_s):
                        self._process.kill()
                    succeeded, value = self._connection.recv()
            except (EOFError, OSError) as error:
                self.stop()
                self._start()
                limits = f"{self._limit_s:g} s or 1 GB of memory to read, or than ulimit leaves"
                raise ValueError(f"{name} takes more than {limits}: divide it") from error
        if not succeeded:
            raise value
        return value  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Ends a call that waits; the next one has a new process."""
        process = self._process
        process.kill()
        process.wait()

    def close(self) -> None:
        """Ends the process, and a call that waits for it."""
        self.stop()
        with self._lock:  # the end of the call has started another one
            self.stop()


def answer_calls(number: int, limit_s: float) -> None:
    """Answers the calls that the socket with the descriptor ``number`` receives."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a server that drains still reads
    from nq.formats import inputs  # noqa: F401 - its libraries are not counted

    limits = {resource.RLIMIT_AS: psutil.Process().memory_info().vms + MEMORY_BYTES}
    connection: Connection[Any, Any] = Connection(number)
    while True:
        function, arguments = connection.recv()
        connection.send((True, "the call begins"))
        limits[resource.RLIMIT_CPU] = math.ceil(time.process_time() + limit_s)
        for kind, value in limits.items():
            _, hard = resource.getrlimit(kind)
            limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (limit, hard))
        try:
            answer = True, function(*arguments)
        except Exception as error:
            if isinstance(error, MemoryError):
                raise
            answer = False, error
        connection.send(answer)
