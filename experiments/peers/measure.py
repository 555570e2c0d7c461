"""Runs each peer in a process of its own, one round at a time.

The thread pools of several libraries interfere within one process. So each peer has its model in a
process of its own, which waits for a command: only one computes at a time, and the rounds
alternate, so that a change of the machine's speed affects all peers.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments import units
from experiments.peers.models import LOADERS, Peer, Task
from nq.errors import Error
from nq.records import FloatArray

ROUND = "round"


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


@dataclass(eq=False)
class Measured:
    """What has been measured of a peer.

    Args:
        peer: the peer.
        ready: its report after loading; ``None`` if it failed then or later.
        seconds: of each round.
        failure: why it is not measured any more; empty while it is.
    """

    peer: Peer
    ready: Ready | None = None
    seconds: list[float] = field(default_factory=list)
    failure: str = ""

    def load(self, unit: units.Unit) -> None:
        """Waits until the peer has loaded its model."""
        try:
            self.ready = unit.receive()
        except Error as error:
            self.failure = str(error)

    def round(self, unit: units.Unit) -> None:
        """Runs one more round, unless the peer has failed."""
        if self.failure:
            return
        try:
            self.seconds.append(unit.ask(ROUND))
        except Error as error:
            self.ready, self.failure = None, str(error)


def measure(
    peers: Sequence[Peer],
    task: Task,
    rounds: int,
    folder: Path | None,
    progress: Callable[[int, int], None] = lambda new, total: None,
) -> list[Measured]:
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
    pairs = []
    with contextlib.ExitStack() as stack:
        for peer in peers:
            log = folder and folder / f"{peer.maker}-{peer.variant}.log"
            unit = stack.enter_context(units.started(load, (peer, task), log=log))
            measured = Measured(peer)
            measured.load(unit)
            pairs.append((measured, unit))
            progress(1, total)
        for number in range(rounds):
            for measured, unit in pairs if number % 2 else reversed(pairs):
                measured.round(unit)
                progress(1, total)
    return [measured for measured, _ in pairs]


def load(work: tuple[Peer, Task]) -> tuple[Ready, units.Work]:
    """Loads a peer in its process; returns its report, and what times a round."""
    import psutil

    peer, task = work
    started = time.perf_counter()
    precision, run = LOADERS[peer.maker](task, peer.variant)
    load_s = time.perf_counter() - started
    gc.collect()  # exports leave gigabytes in reference cycles
    logits = run()
    memory_mb = float(psutil.Process().memory_info().rss) / 2**20

    def timed(command: str) -> float:
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    return Ready(precision, load_s, memory_mb, logits), timed
