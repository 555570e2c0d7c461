"""Processes that a test starts: Python in a folder, children by what runs in them, waiting."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
PATIENCE_S = 600.0
"""After which a test fails that would wait for ever; what it waits for takes seconds."""


def _environment(others: Mapping[str, str]) -> dict[str, str]:
    """Returns variables with which this project can be imported and no MLflow is set up."""
    kept = {name: x for name, x in os.environ.items() if not name.startswith("MLFLOW")}
    return {**kept, "PYTHONPATH": str(ROOT), **others}


def python(
    *arguments: object, folder: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python in a folder."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=_environment(environment),
        capture_output=True,
        text=True,
        check=False,
    )


@contextlib.contextmanager
def started(
    *arguments: object, folder: Path = ROOT, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """Starts Python in a folder, with pipes; it is killed at the end of the block."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=_environment(environment),
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    """Returns the first line that a process prints, without its end."""
    assert process.stdout
    return process.stdout.readline().rstrip("\n")


def free_port() -> int:
    """Returns a port of the loopback interface on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_until(
    condition: Callable[[], object], process: subprocess.Popen[Any] | None = None
) -> None:
    """Waits until a condition holds; with a process, as long as that runs."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if process is not None:
            assert process.poll() is None, "the process has ended"
        else:
            assert time.monotonic() < end, "the condition has not come true"
        time.sleep(0.02)


def children(word: str) -> list[psutil.Process]:
    """Returns the child processes that have a word in their command line."""
    return [process for process in psutil.Process().children() if _has(process, word)]


def _has(process: psutil.Process, word: str) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):  # or it has ended and nobody has asked how
        return word in " ".join(process.cmdline())
    return False
