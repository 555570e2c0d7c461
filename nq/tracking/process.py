"""The identity of a process, by which another process on the same machine knows that it has ended.

A number of a process alone does not tell: numbers are used again, and a container has its own.
"""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

PROC = Path("/proc")


def identity() -> str:
    """Returns host, boot, process namespace, number and start time of this process.

    The text is empty on systems without ``/proc``.
    """
    with contextlib.suppress(OSError):
        return f"{_machine()} {os.getpid()} {_start_time(os.getpid())}"
    return ""


def has_ended(process: str) -> bool:
    """Returns whether a process is known to have ended; false for those of other machines.

    Args:
        process: from ``identity``.

    >>> has_ended(identity()), has_ended("another-host 1 2 3 4"), has_ended("")
    (False, False, False)
    """
    with contextlib.suppress(OSError, ValueError):
        machine, pid, started = process.rsplit(maxsplit=2)
        if machine != _machine():
            return False
        try:
            return _start_time(int(pid)) != started
        except FileNotFoundError:
            return True
    return False


def _machine() -> str:
    boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{platform.node()} {boot} {(PROC / 'self/ns/pid').readlink()}"


def _start_time(pid: int) -> str:
    """Returns when a process started, in ticks since the boot.

    Raises:
        FileNotFoundError: there is no such process, or it has ended and waits for its parent.
    """
    state, *fields = (
        (PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    )
    if state in "ZX":
        raise FileNotFoundError(pid)
    return fields[18]
