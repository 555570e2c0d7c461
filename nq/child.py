"""How child processes of Python start: all alike."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).resolve().parents[1])  # from where this package is imported
_BOUND = (
    "import ctypes, os, runpy; ctypes.CDLL(None).prctl(1, {:d})  # PR_SET_PDEATHSIG\n"
    "if os.getppid() == {}: runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
)


def python(*arguments: str, **variables: str) -> dict[str, Any]:
    """Returns command and environment of a Python process, as ``subprocess`` takes them.

    It finds this package. Neither it nor the processes that it starts run Python files of the
    working folder. The ``variables`` are added to the environment of this process.
    """
    path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
    own = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}  # the second is python -P
    return {"args": [sys.executable, *arguments], "env": {**os.environ, **variables, **own}}


def bound(
    module: str, *arguments: str, by: int = signal.SIGKILL, **variables: str
) -> dict[str, Any]:
    """Returns what ``python`` does for ``python -m``, of a process that ends with this one.

    It gets the signal ``by`` when the thread that starts it ends.
    """
    return python("-c", _BOUND.format(by, os.getpid(), module), *arguments, **variables)


def start(
    code: str, variables: Mapping[str, str] | None = None, stderr: int | None = None
) -> tuple[subprocess.Popen[bytes], Connection[Any, Any]]:
    """Starts a process that runs ``code``, and returns it with a connection to it.

    In the code ``{}`` stands for the number of the socket at the other end, which the end of this
    process closes. A terminal's Ctrl-C does not reach the process.
    """
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            **python("-c", code.format(theirs.fileno()), **(variables or {})),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,  # a terminal sends Ctrl-C to all processes of a session
        )
    return process, ours
