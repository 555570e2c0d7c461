"""Runs each peer in a process of its own, one round at a time.

The thread pools of several libraries interfere within one process. So each peer has its model in a
process of its own, which waits for a command: only one computes at a time, and the rounds
alternate, so that a change of the machine's speed affects all peers.
"""

import contextlib
import gc
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from experiments import Values, study, units
from experiments.peers.models import LOADERS, Peer, Task
from nq.errors import Error

SIZE, TIMES = 2048, 10
TYPES = ("float32", "bfloat16")


def peaks() -> dict[str, float]:
    """Returns the best GFLOP/s of large square TensorFlow matrix products on the CPU, by type."""
    import tensorflow as tf

    best = dict.fromkeys(TYPES, 0.0)
    with tf.device("CPU"):
        for name in TYPES:
            factor = tf.cast(tf.random.normal((SIZE, SIZE)), name)
            tf.matmul(factor, factor)
            for _ in range(TIMES):
                started = time.perf_counter()
                tf.matmul(factor, factor)
                best[name] = max(best[name], 2 * SIZE**3 / (time.perf_counter() - started) / 1e9)
    return best


def measure(peers: Sequence[Peer], task: Task, rounds: int, folder: Path | None) -> list[Values]:
    """Loads the peers one after the other and measures them in alternating rounds.

    What the libraries print is in log files in the folder, if there is one.

    Returns:
        For each the ``peer``, the values of ``load``, the ``seconds`` of each round, and the
        ``failure`` that kept it from being measured, empty if there is none.
    """
    pairs: list[tuple[Values, study.Step]] = []
    with contextlib.ExitStack() as stack:
        for peer in peers:
            log = folder and folder / f"{peer.maker}-{peer.variant}.log"
            unit = stack.enter_context(units.started(load, (peer, task), log=log))
            row: Values = {"peer": peer, "seconds": [], "failure": ""}
            with failing(row):
                row |= unit.receive()
            pairs.append((row, partial(_step, unit, row)))
        return study.timed(pairs, rounds)


@contextlib.contextmanager
def failing(row: Values) -> Iterator[None]:
    """Lets an error of a peer end its own measurement alone."""
    try:
        yield
    except Error as error:
        row["failure"] = str(error)


def _step(unit: units.Unit, row: Values) -> dict[str, float]:
    """Runs one more round, unless the peer has failed."""
    with failing(row):
        return {} if row["failure"] else {"seconds": unit.ask("round")}
    return {}


def load(work: tuple[Peer, Task]) -> tuple[Values, units.Work]:
    """Loads a peer in its process.

    Returns:
        Its compute type (``precision``), the seconds to load it, its resident memory after all
        windows were computed once, and the start and end logits, float32 ``[2, N, L]``; and what
        times a round.
    """
    import psutil

    peer, task = work
    started = time.perf_counter()
    precision, run = LOADERS[peer.maker](task, peer.variant)
    load_s = time.perf_counter() - started
    gc.collect()  # exports leave gigabytes in reference cycles
    logits = run()
    memory_mb = float(psutil.Process().memory_info().rss) / 2**20
    values = {
        "precision": precision,
        "load_s": load_s,
        "memory_mb": memory_mb,
        "logits": logits,
    }
    return values, lambda command: units.seconds(run)
