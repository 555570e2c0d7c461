"""Runs each peer in a process of its own, one round at a time.

The thread pools of several libraries interfere within one process. So each peer has its model in a
process of its own, which waits at a pipe: only one computes at a time, and the rounds alternate, so
that a change of the machine's speed affects all peers.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from experiments.peers.models import Peer, Task, loaded
from nq.records import FloatArray

END_TIMEOUT_S = 10
KILLED = "the process was killed, probably out of memory: measure fewer peers at once with --peers"


@dataclass(frozen=True, eq=False)
class Ready:
    """The report of a peer that has loaded its model and computed all windows once.

    Args:
        precision: its compute type.
        load_s: seconds to load the model.
        memory_mb: resident memory after all windows were computed once.
        logits: start and end logits, float32 ``[2, N, L]``.
    """

    precision: str
    load_s: float
    memory_mb: float
    logits: FloatArray


@dataclass(frozen=True)
class Failed:
    """The report of a peer that failed, with the reason."""

    reason: str


@dataclass(eq=False)
class Worker:
    """The process of a peer, seen from the command.

    Args:
        peer: the peer.
        process: its process.
        pipe: our end of the pipe to it.
        ready: its report after loading; ``None`` if it failed then or later.
        seconds: of each round.
        failure: why it is not measured any more; empty while it is.
    """

    peer: Peer
    process: BaseProcess
    pipe: Connection
    ready: Ready | None = None
    seconds: list[float] = field(default_factory=list)
    failure: str = ""

    def receive(self) -> Any:
        """Returns the next message; ``None`` after a failure, whose reason is in ``failure``."""
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(END_TIMEOUT_S)
            code = self.process.exitcode
            killed = code == -signal.SIGKILL
            message = Failed(KILLED if killed else f"the process ended with exit code {code}")
        if isinstance(message, Failed):
            self.ready, self.failure = None, message.reason
            return None
        return message

    def round(self) -> None:
        """Runs one more round, unless the peer has failed."""
        if self.failure:
            return
        with contextlib.suppress(OSError):  # the process has ended: ``receive`` has the reason
            self.pipe.send(True)
        seconds = self.receive()
        if not self.failure:
            self.seconds.append(seconds)


def measure(
    peers: Sequence[Peer],
    task: Task,
    rounds: int,
    folder: Path | None,
    progress: Callable[[int, int], None] = lambda new, total: None,
) -> list[Worker]:
    """Loads the peers one after the other and measures them in alternating rounds.

    Args:
        peers: the peers to measure.
        task: what each computes.
        rounds: number of rounds.
        folder: for log files of what the libraries print; ``None`` lets them print it.
        progress: receives the loads and rounds that have just been completed, and how many there
            are.
    """
    total = len(peers) * (1 + rounds)
    workers = []
    with contextlib.ExitStack() as stack:
        for peer in peers:
            log = folder and folder / f"{peer.maker}-{peer.variant}.log"
            workers.append(stack.enter_context(_started(peer, task, log)))
            workers[-1].ready = workers[-1].receive()
            progress(1, total)
        for number in range(rounds):
            for worker in workers if number % 2 else reversed(workers):
                worker.round()
                progress(1, total)
    return workers


@contextlib.contextmanager
def _started(peer: Peer, task: Task, log: Path | None) -> Iterator[Worker]:
    """Starts the process of a peer, which ends with the block."""
    context = multiprocessing.get_context("spawn")
    parent, child = context.Pipe()
    process = context.Process(target=serve, args=(child, peer, task, log), daemon=True)
    process.start()
    child.close()
    try:
        yield Worker(peer, process, parent)
        with contextlib.suppress(OSError):
            parent.send(False)
        process.join(END_TIMEOUT_S)
    finally:
        parent.close()
        if process.is_alive():
            process.kill()
        process.join()
        process.close()


def serve(pipe: Connection, peer: Peer, task: Task, log: Path | None) -> None:
    """Runs in the process of a peer.

    It sends ``Ready``, then seconds for each ``True`` that it receives; or ``Failed``.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # CPUs are compared
    _be_killed_first()
    if log:
        _redirect_output(log)
    try:
        _serve(pipe, peer, task)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return  # the command has ended
    except Exception as error:
        traceback.print_exc()
        pipe.send(Failed(f"{type(error).__name__}: {' '.join(str(error).split())}"))


def _serve(pipe: Connection, peer: Peer, task: Task) -> None:
    started = time.perf_counter()
    with loaded(peer, task) as (precision, run):
        load_s = time.perf_counter() - started
        gc.collect()  # exports leave gigabytes in reference cycles
        logits = run()
        pipe.send(Ready(precision, load_s, _memory_mb(), logits))
        while pipe.recv():
            started = time.perf_counter()
            run()
            pipe.send(time.perf_counter() - started)


def _be_killed_first() -> None:
    """Makes the system kill this process first if memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _memory_mb() -> float:
    import psutil

    return float(psutil.Process().memory_info().rss) / 2**20


def _redirect_output(log: Path) -> None:
    """Redirects the output of this process, that of C++ code too, to a file."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
