"""Cores and threads: which instance runs on which cores, and what holds in a process."""

from __future__ import annotations

import logging
import os

log = logging.getLogger(__name__)


def available() -> tuple[int, ...]:
    """Returns the numbers of the cores that this process may use, ascending."""
    return tuple(sorted(os.sched_getaffinity(0)))


def resolved(instances: int | str | None, threads: int | None) -> tuple[int | None, int | None]:
    """Returns the numbers of instances and of their threads, with what was left open.

    Args:
        instances: a number, ``"auto"`` for as many as there are cores for, ``None`` for none.
        threads: of each; by default those for which there are cores, or 1 with ``"auto"``.
    """
    total = len(available())
    if instances is None:
        return None, threads
    if isinstance(instances, str):
        threads = threads or 1
        return max(1, total // threads), threads
    return instances, threads or max(1, total // instances)


def divided(cores: tuple[int, ...], instances: int, threads: int) -> list[tuple[int, ...]]:
    """Returns the cores of each instance, as many as it has threads.

    They are disjoint as long as there are enough; then the first cores are shared.

    Args:
        cores: all of them.
        instances: number of instances.
        threads: of each instance.

    >>> divided((0, 1, 2, 3), 2, 2), divided((4, 6), 3, 1), divided((4, 6), 1, 3)
    ([(0, 1), (2, 3)], [(4,), (6,), (4,)], [(4, 6)])
    """
    numbers = [range(i * threads, (i + 1) * threads) for i in range(instances)]
    return [tuple(sorted({cores[n % len(cores)] for n in some})) for some in numbers]


def warn_if_too_few(instances: int, threads: int) -> None:
    """Logs a warning if this process may use fewer cores than there are threads."""
    wanted, there = instances * threads, len(available())
    if wanted > there:
        log.warning(
            "%d instance%s of %d thread%s on %d core%s: they wait for each other; give fewer",
            *(instances, "s" * (instances > 1), threads, "s" * (threads > 1)),
            *(there, "s" * (there > 1)),
        )


def shown(cores: tuple[int, ...]) -> str:
    """Returns cores in words.

    >>> shown((3,)), shown((0, 1, 2, 7))
    ('core 3', 'cores 0, 1, 2, 7')
    """
    return f"core{'s' if len(cores) > 1 else ''} {', '.join(map(str, cores))}"
