"""A process that reads pages that other people made, within limits of time and memory.

A page that takes more ends the process, and a new one is started at once: a fresh Python, because
a fork would copy threads and locks. Its start counts for no page.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from nq.formats import inputs  # noqa: F401 - its libraries do not count as memory of a page
from nq.worker import Limits, Worker, WorkerDiedError

WAIT_S = 60.0
MEMORY_BYTES = 900 << 20
"""Seconds for the start, and for a page to wait, also for the processor, which other programs use;
memory of a page, without that of the libraries: in all less than 1 GB."""
T = TypeVar("T")


class PageProcess:
    """Calls functions that read pages in a process; one call at a time, from any thread.

    A call may take ``limit_s`` of the processor, and wait ``WAIT_S``.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._is_closed = False
        self._start()

    def _start(self) -> None:
        self._worker = Worker(
            _read,
            name="reads pages",
            variables={"OPENBLAS_NUM_THREADS": "1"},
            limits=Limits(self._limit_s, MEMORY_BYTES),
        )

    def read(self, name: str, function: Callable[..., T], *arguments: Any) -> T:
        """Returns what a function of a module returns in the process, or raises what it raises.

        ``ValueError`` says that what the error calls ``name`` takes too much time or memory.
        """
        with self._lock:
            if self._is_closed:
                raise ValueError(f"{name} came after the end of the process that reads pages")
            if not self._worker.is_alive:
                self._start()
            try:
                self._worker.wait(WAIT_S)
                result: T = self._worker.call((function, arguments), self._limit_s + WAIT_S)
                return result
            except WorkerDiedError as error:
                self._start()
                limits = f"{self._limit_s:g} s or 1 GB of memory to read, or than ulimit leaves"
                raise ValueError(f"{name} takes more than {limits}: divide it") from error

    def stop(self) -> None:
        """Ends a call that waits; the next one has a new process."""
        process = self._worker.process  # which the end of a call replaces
        process.kill()
        process.wait()

    def close(self) -> None:
        """Ends the process, and a call that waits for it."""
        self.stop()
        with self._lock:  # the end of the call has started another one
            self._is_closed = True
            self._worker.end(0.0)


def _read(call: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    function, arguments = call
    return function(*arguments)
