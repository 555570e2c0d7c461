"""Processes that experiments measure, with cores and environment from the first import on.

A unit loads what it measures and then waits at a pipe: each command that it receives is one timed
step. A unit starts with the affinity and the environment that it is to have, because TensorFlow,
OpenVINO and ONNX Runtime read both once, when they are imported.
"""

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from nq.errors import Error

END_TIMEOUT_S = 10
KILLED = "the process was killed, probably out of memory: measure fewer models at once"
CPU_ONLY = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "KERAS_BACKEND": "tensorflow",
}

Work = Callable[[Any], Any]
"""What a unit does with a command; it returns the reply."""
Load = Callable[[Any], tuple[Any, Work]]
"""Loads what a unit measures, by its task; returns the first reply, and its work."""


@dataclass(frozen=True)
class Failed:
    """The reply of a unit that failed, with the reason."""

    reason: str


@dataclass(frozen=True, eq=False)
class Unit:
    """A process that measures, and our end of the pipe to it."""

    process: BaseProcess
    pipe: Connection

    def send(self, command: Any) -> None:
        """Lets the unit begin with a command."""
        with contextlib.suppress(OSError):  # the process has ended: ``receive`` has the reason
            self.pipe.send(command)

    def receive(self) -> Any:
        """Returns the next reply; an ``Error`` if the unit failed or its process has ended."""
        try:
            reply = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(END_TIMEOUT_S)
            code = self.process.exitcode
            killed = code == -signal.SIGKILL
            reply = Failed(KILLED if killed else f"the process ended with exit code {code}")
        if isinstance(reply, Failed):
            raise Error(reply.reason)
        return reply

    def ask(self, command: Any) -> Any:
        """Returns the reply to a command; see ``receive``."""
        self.send(command)
        return self.receive()


def seconds(step: Callable[[], object]) -> float:
    """Returns the seconds that a step takes."""
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def together(units: Sequence[Unit], command: Any) -> tuple[float, list[Any]]:
    """Lets units compute at the same time; returns the seconds of all, and the reply of each."""
    started = time.perf_counter()
    for unit in units:
        unit.send(command)
    replies = receive_all(units)
    return time.perf_counter() - started, replies


def receive_all(units: Sequence[Unit]) -> list[Any]:
    """Returns the next reply of each unit; an ``Error`` says which ones failed or have ended."""
    replies, failures = [], []
    for number, unit in enumerate(units, 1):
        try:
            replies.append(unit.receive())
        except Error as error:
            failures.append(f"process {number} of {len(units)}: {error}")
    if failures:
        raise Error("; ".join(failures))
    return replies


def thread_settings(threads: int) -> dict[str, str]:
    """Returns the environment in which all libraries compute with ``threads`` threads.

    TensorFlow has as many threads for operations that may run at once, as by default: with one of
    them the models of several threads would wait for each other.
    """
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    return dict.fromkeys((*names, "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))


def shares(cores: Collection[int], instances: int) -> list[list[int]]:
    """Returns the cores of each instance: disjoint, or one each in turn if there are too few.

    >>> shares([0, 1, 2, 3], 2), shares([0, 1], 3)
    ([[0, 1], [2, 3]], [[0], [1], [0]])
    """
    each = len(cores) // instances
    ordered = sorted(cores)
    if not each:
        return [[ordered[i % len(ordered)]] for i in range(instances)]
    return [ordered[i * each : (i + 1) * each] for i in range(instances)]


@contextlib.contextmanager
def started(
    load: Load,
    task: Any,
    cores: Collection[int] = (),
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Iterator[Unit]:
    """Starts a unit, which ends with the block; its first reply is still to be received.

    Args:
        load: a function of a module.
        task: its argument.
        cores: that the process may use; by default those of this process.
        environment: of the process, besides that of this one, and with cores the
            ``thread_settings`` for a thread on each.
        log: file for all that the process prints, by C++ code too; by default it is shown.
    """
    context = multiprocessing.get_context("spawn")
    parent, child = context.Pipe()
    process = context.Process(target=_serve, args=(child, load, task, log), daemon=True)
    settings = thread_settings(len(cores)) if cores else {}
    with _inherited({**CPU_ONLY, **settings, **(environment or {})}, cores):
        process.start()
    child.close()
    try:
        yield Unit(process, parent)
        with contextlib.suppress(OSError):
            parent.send(None)
        process.join(END_TIMEOUT_S)
    finally:
        parent.close()
        if process.is_alive():
            process.kill()
        process.join()
        process.close()


def _serve(pipe: Connection, load: Load, task: Any, log: Path | None) -> None:
    """Runs in the process of a unit: replies to each command until there is none."""
    if log:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
    with contextlib.suppress(OSError):  # the system kills it first if memory runs out
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    try:
        reply, work = load(task)
        pipe.send(reply)
        while (command := pipe.recv()) is not None:
            pipe.send(work(command))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return  # the study, or another process of it, has ended
    except Exception as error:
        traceback.print_exc()
        pipe.send(Failed(f"{type(error).__name__}: {' '.join(str(error).split())}"))


@contextlib.contextmanager
def _inherited(environment: Mapping[str, str], cores: Collection[int]) -> Iterator[None]:
    """Sets environment variables, and pins this process to cores if any are given, for a block."""
    before = dict(os.environ)
    own = os.sched_getaffinity(0)
    os.environ.update(environment)
    os.sched_setaffinity(0, cores or own)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)
        os.environ.clear()
        os.environ.update(before)


def thread_cores() -> list[list[int]]:
    """Returns the different sets of cores that threads of this process may use, read back."""
    sets = set()
    for folder in Path("/proc/self/task").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the thread has just ended
            sets.add(tuple(sorted(os.sched_getaffinity(int(folder.name)))))
    return sorted(map(list, sets))
