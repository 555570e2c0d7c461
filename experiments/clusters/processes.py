"""Processes of a cluster: started in the background, and found again by a mark.

The mark is a variable in the environment of each process, which those inherit that it starts. So
``end`` finds all, also those of a cluster whose parts or whose starter have crashed, and no others.
"""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from experiments.clusters.programs import Program
from nq.errors import Error

MARK = "NQ_EXPERIMENT"
GRACE_S, POLL_S, TIMEOUT_S = 5.0, 0.1, 90.0
TAIL_BYTES = 4096


class Running(NamedTuple):
    """A program that was started, and the file of what it prints."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path


def start(program: Program, folder: Path) -> Running:
    """Starts a program; what it prints is in ``folder/NAME.out``."""
    pin = [] if program.core is None else ["taskset", "--cpu-list", str(program.core)]
    path = folder / f"{program.name}.out"
    with path.open("wb") as output:
        process = subprocess.Popen(
            [*pin, *program.command],
            cwd=folder,
            env={**os.environ, **program.environment, MARK: str(folder.resolve())},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Running(program.name, process, path)


def find(folder: Path) -> list[psutil.Process]:
    """Returns the processes that have the mark of a folder, such as those of a cluster in it."""
    mark, found = str(folder.resolve()), []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.pid != os.getpid():
                found.append(process)
    return found


def end(folder: Path) -> int:
    """Ends all processes that have the mark of a folder; returns how many there were."""
    ended = set[int]()
    while running := find(folder):  # a pool may start a worker meanwhile
        for process in running:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.pid in ended:
                    process.kill()
                else:
                    process.terminate()
        ended.update(process.pid for process in running)
        psutil.wait_procs(running, GRACE_S)
    return len(ended)


def wait(condition: Callable[[], bool], what: str, started: Sequence[Running]) -> None:
    """Waits until a condition holds, in words ``what``, such as "the job server answers".

    Raises:
        Error: one of the started programs, on which it depends, has ended, or it takes too long.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        for program in started:
            if (code := program.process.poll()) is not None:
                lines = (
                    program.output.read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace").split("\n")
                )
                last = next(filter(str.strip, reversed(lines)), "it printed nothing").strip()
                raise Error(
                    f"{program.name} ended with exit code {code}: {last}; "
                    f"see {program.output} and the .log file beside it"
                )
        if time.monotonic() > deadline:
            folder = started[0].output.parent
            raise Error(f"it is not so after {TIMEOUT_S:.0f} s that {what}: see {folder}/*.log")
        time.sleep(POLL_S)


def listens(address: tuple[str, int]) -> bool:
    """Returns whether a program listens at an address."""
    with contextlib.suppress(OSError), socket.create_connection(address, 1.0):
        return True
    return False
