"""The choice behind ``--profile auto`` between one process and an instance for each core.

Both compute the same windows in rounds that alternate between them. An instance has a copy of the
model and of all libraries, so that it must be worth its memory.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass

from nq.errors import Error
from nq.inference import cores
from nq.inference.instances import InstancePool
from nq.inference.load import ScorerSpec
from nq.inference.scorer import Rows, Scorer
from nq.runs.machine import available_memory_bytes, tree_memory_bytes
from nq.text import format_bytes

GAIN = 1.05
ROUNDS = 3
MEMORY_SHARE = 0.5
"""Share of the memory that is free that instances may need at most to be tried."""


@dataclass(frozen=True)
class InstancesTrial:
    """The speeds of one process with all cores and of an instance for each core.

    Args:
        instances: how many instances there were.
        windows_per_s: of the process, and of all instances together; the median of the rounds.
    """

    instances: int
    windows_per_s: tuple[float, float]

    @property
    def accepted(self) -> bool:
        """Whether the instances are worth their memory."""
        one, several = self.windows_per_s
        return several > GAIN * one

    def __str__(self) -> str:
        one, several = self.windows_per_s
        return (
            f"{self.instances} instances of 1 thread: {several:.1f} windows/s, "
            f"one process: {one:.1f} windows/s"
        )


def try_instances(spec: ScorerSpec, scorer: Scorer, rows: Rows) -> InstancesTrial:
    """Returns the speeds of one process and of as many instances as there are cores.

    Args:
        spec: of the scorer of an instance, which needs no examples.
        scorer: the same in this process, warm.
        rows: windows to compute; each instance computes them all.

    Raises:
        Error: the instances would need too much memory, or cannot be started.
    """
    count = len(cores.available())
    _check_memory(count)
    n_windows = len(rows["window_ids"])

    def one() -> float:
        started = time.perf_counter()
        scorer.scores(rows, ())
        return n_windows / (time.perf_counter() - started)

    with InstancePool(spec, count, 1) as pool:

        def several(times: int = 1) -> float:
            started = time.perf_counter()
            for future in [pool.submit(rows, ()) for _ in range(count * times)]:
                future.result()
            return count * times * n_windows / (time.perf_counter() - started)

        several(2)  # each instance compiles
        rounds = [(one(), several()) for _ in range(ROUNDS)]
    speeds = [statistics.median(some) for some in zip(*rounds, strict=True)]
    return InstancesTrial(count, (speeds[0], speeds[1]))


def _check_memory(instances: int) -> None:
    """Checks that there is memory for so many processes of the size of this one.

    Raises:
        Error: there is not.
    """
    needed, free = instances * tree_memory_bytes(os.getpid()), available_memory_bytes()
    if needed > MEMORY_SHARE * free:
        raise Error(
            f"{instances} instances may need {format_bytes(needed)} of the {format_bytes(free)} of "
            "memory that are free: not tried"
        )
