"""The machine: its name for comparisons of speed, and the memory of a tree of processes."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from pathlib import Path

from nq import processor

PROC = Path("/proc")
KIB = 1 << 10


def machine() -> str:
    """Returns the processor and the number of its cores that this process may use."""
    return f"{processor.name()}, {len(os.sched_getaffinity(0))} cores"


def tree_memory_bytes(root: int) -> int:
    """Returns the resident memory of a process and its descendants at this moment.

    Pages that several processes share count in each of them.

    Args:
        root: number of the process.
    """
    children: dict[int, list[int]] = defaultdict(list)
    pages: dict[int, int] = {}
    for path in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = (path / "stat").read_bytes().rpartition(b")")[2].split()
            children[int(fields[1])].append(int(path.name))
            pages[int(path.name)] = int(fields[21])
    total, left = 0, [root]
    while left:
        process = left.pop()
        total += pages.get(process, 0)
        left += children[process]
    return total * os.sysconf("SC_PAGE_SIZE")


def available_memory_bytes() -> int:
    """Returns the memory that new processes can use, 0 if unknown."""
    with contextlib.suppress(OSError, StopIteration):
        lines = (PROC / "meminfo").read_text(encoding="utf-8").splitlines()
        return KIB * int(next(x for x in lines if x.startswith("MemAvailable")).split()[1])
    return 0


def own_peak_bytes() -> int:
    """Returns the largest resident memory of this process since its start, 0 if unknown.

    ``resource.getrusage`` would count the process that started this one too.
    """
    with contextlib.suppress(OSError, StopIteration):
        lines = (PROC / "self" / "status").read_text(encoding="utf-8").splitlines()
        return KIB * int(next(x for x in lines if x.startswith("VmHWM")).split()[1])
    return 0
