"""The frame of all attacks: a process within limits, a verdict on its end, and a row for each."""

from __future__ import annotations

import argparse
import fnmatch
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

DONE, SAME, SKIPPED, REFUSED = "done", "same result", "skipped", "refused"
WRONG, TRACEBACK, NOT_ONE_LINE = "WRONG RESULT", "TRACEBACK", "NOT ONE LINE"
TIMEOUT, MEMORY = "TIMEOUT", "TOO MUCH MEMORY"
MEMORY_MIB, KIB_PER_MIB = 6 * 1024, 1024
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Row:
    """One attack on a target, its verdict, and the verdicts that are right.

    ``peak_mib`` is the largest resident memory of the process or of one of its children; the text
    has details, such as the last line of the process.
    """

    attack: str
    target: str
    verdict: str
    expected: tuple[str, ...] = (DONE,)
    text: str = ""
    seconds: float = 0.0
    peak_mib: float = 0.0


Group = Callable[[argparse.Namespace, Path, random.Random], Iterator[Row]]
"""Makes the attacks of a group by the options of the command, in an empty folder."""


@dataclass(frozen=True)
class End:
    """How a process ended; the code is negative for a signal.

    ``lines`` are those of stderr, ``in_time`` tells whether it ended by itself, and ``cost`` has
    its seconds and its peak memory, as in ``Row``.
    """

    code: int
    out: bytes
    lines: tuple[str, ...]
    in_time: bool
    cost: tuple[float, float]

    @property
    def last(self) -> str:
        """The last line of stderr."""
        return self.lines[-1] if self.lines else ""

    def verdict(self, usual: Sequence[str] = ()) -> str:
        """Returns ``DONE`` for exit code 0, ``REFUSED`` for code 1 with one line of error.

        ``usual`` lines are those that the same command writes without an attack.
        """
        new = [line for line in self.lines if line not in usual]
        if not self.in_time:
            return TIMEOUT
        if self.cost[1] > MEMORY_MIB:
            return MEMORY
        if self.code not in (0, 1) or any("Traceback" in line for line in new):
            return TRACEBACK
        errors = sum(line.startswith("nq: error: ") for line in new)
        is_ours = all(line.startswith("nq: ") for line in new)
        return DONE if self.code == 0 else REFUSED if errors == 1 and is_ours else NOT_ONE_LINE


def run_process(arguments: str, folder: Path, limit_s: float) -> End:
    """Runs Python with arguments in a folder; kills it after ``limit_s``."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [sys.executable, *arguments.split()],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        timer = threading.Timer(limit_s, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)  # with the peak of its own children
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - started
        out.seek(0)
        err.seek(0)
        lines = tuple(err.read().decode("utf-8", "replace").strip().splitlines())
        cost = seconds, usage.ru_maxrss / KIB_PER_MIB
        return End(process.returncode, out.read(), lines, seconds < limit_s, cost)


def chosen(args: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Returns the names that match a pattern of ``--only``, or all without it."""
    return [n for n in names if not args.only or any(fnmatch.fnmatch(n, p) for p in args.only)]
