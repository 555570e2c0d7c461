"""Each peer in a process of its own, asked for one round at a time.

Thread pools of different libraries disturb each other within one process. So each peer keeps
its model in its own and waits at a pipe: only one computes at a time, and the rounds of all
alternate, so that a machine that slows down slows down all of them.
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

PATIENCE_S = 10
KILLED = "killed, likely for want of memory: measure fewer at once, by --peers"


@dataclass(frozen=True, eq=False)
class Ready:
    """A peer has loaded its model and computed all windows once.

    Args:
        precision: the type that it computes in.
        load_s: seconds until it could compute.
        memory_mb: resident, after all windows were computed once.
        logits: of start and end, float32 ``[2, N, L]``.
    """

    precision: str
    load_s: float
    memory_mb: float
    logits: FloatArray


@dataclass(frozen=True)
class Failed:
    """A peer could not go on, and why."""

    why: str


@dataclass(eq=False)
class Worker:
    """A peer's process as the command sees it.

    Args:
        peer: which.
        ready: what it told once it had loaded; ``None`` if it failed.
        seconds: of each round.
        failure: why it takes no part any more; empty while it does.
    """

    peer: Peer
    process: BaseProcess
    pipe: Connection
    ready: Ready | None = None
    seconds: list[float] = field(default_factory=list)
    failure: str = ""

    def hear(self) -> Any:
        """The next answer; ``None`` if there is none, for the reason in ``failure``."""
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(PATIENCE_S)
            code = self.process.exitcode
            answer = Failed(KILLED if code == -signal.SIGKILL else f"its process ended with {code}")
        if isinstance(answer, Failed):
            self.failure = answer.why
            return None
        return answer

    def round(self) -> None:
        """One more round, if the peer still takes part."""
        if self.failure:
            return
        with contextlib.suppress(OSError):  # a process that has ended is heard of below
            self.pipe.send(True)
        seconds = self.hear()
        if not self.failure:
            self.seconds.append(seconds)


def measure(
    peers: Sequence[Peer],
    task: Task,
    rounds: int,
    folder: Path | None,
    on_step: Callable[[int, int], None] = lambda new, total: None,
) -> list[Worker]:
    """Loads the peers one after the other, then lets them compute in alternating rounds.

    Args:
        peers: those to measure.
        task: what each computes.
        rounds: how often.
        folder: for what the peers' libraries print; ``None`` lets them print it.
        on_step: told of each load and each round, and of how many there are.
    """
    total = len(peers) * (1 + rounds)
    workers = []
    with contextlib.ExitStack() as stack:
        for peer in peers:
            log = folder and folder / f"{peer.maker}-{peer.variant}.log"
            workers.append(stack.enter_context(_started(peer, task, log)))
            workers[-1].ready = workers[-1].hear()
            on_step(1, total)
        for number in range(rounds):
            for worker in workers if number % 2 else reversed(workers):
                worker.round()
                on_step(1, total)
    return workers


@contextlib.contextmanager
def _started(peer: Peer, task: Task, log: Path | None) -> Iterator[Worker]:
    """A new process, which ends with the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, peer, task, log), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Worker(peer, process, ours)
        with contextlib.suppress(OSError):
            ours.send(False)
        process.join(PATIENCE_S)
    finally:
        ours.close()
        if process.is_alive():
            process.kill()
        process.join()
        process.close()


def serve(pipe: Connection, peer: Peer, task: Task, log: Path | None) -> None:
    """What runs in a peer's process: ``Ready``, then seconds for each ``True``; or ``Failed``."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # processors are compared
    _give_way()
    if log:
        _print_into(log)
    try:
        _serve(pipe, peer, task)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return  # who asked is gone
    except Exception as error:
        traceback.print_exc()
        pipe.send(Failed(f"{type(error).__name__}: {' '.join(str(error).split())}"))


def _serve(pipe: Connection, peer: Peer, task: Task) -> None:
    started = time.perf_counter()
    with loaded(peer, task) as (precision, run):
        load_s = time.perf_counter() - started
        gc.collect()  # exports leave gigabytes in circles
        logits = run()
        pipe.send(Ready(precision, load_s, _memory_mb(), logits))
        while pipe.recv():
            started = time.perf_counter()
            run()
            pipe.send(time.perf_counter() - started)


def _give_way() -> None:
    """If memory runs out, this process is the one to end, not anyone's work beside it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _memory_mb() -> float:
    import psutil

    return float(psutil.Process().memory_info().rss) / 2**20


def _print_into(log: Path) -> None:
    """Sends what anyone, C++ included, prints in this process into a file."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
