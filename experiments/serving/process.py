"""A server that is measured: ``nq serve`` in a process of its own, on the loopback interface."""

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from nq.errors import Error

END_S = 60.0


@dataclass(frozen=True)
class ServerProcess:
    """A running server: where it answers, and the file of what it writes to stderr."""

    url: str
    process: psutil.Process
    log: Path

    def workers(self) -> list[psutil.Process]:
        """Returns the processes of the model."""
        children: list[psutil.Process] = self.process.children()
        return [one for one in children if "run_instance" in " ".join(one.cmdline())]

    def memory_mb(self) -> float:
        """Returns the resident memory of all its processes in MB."""
        sizes = [process.memory_info().rss for process in (self.process, *self.process.children())]
        return float(sum(sizes)) / 1e6


@contextlib.contextmanager
def running_server(options: Sequence[str]) -> Iterator[ServerProcess]:
    """Runs a server on a free port for the block; an ``Error`` if it does not start or end."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        with log.open("wb") as stderr:
            command = [sys.executable, "-m", "nq", "serve", "--json", "--port", "0", *options]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr)
        try:
            line = process.stdout.readline() if process.stdout else b""
            if not line:
                raise Error(f"the server has not started: {log.read_text().strip()}")
            yield ServerProcess(json.loads(line)["url"], psutil.Process(process.pid), log)
            process.send_signal(signal.SIGTERM)
            if process.wait(END_S) != 0:
                raise Error(f"the server ended with code {process.returncode}: {log.read_text()}")
        finally:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
