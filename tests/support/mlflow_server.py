"""MLflow's own tracking server."""

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from nq.mlflow_store import ENVIRONMENT
from tests.support.child_processes import free_port, wait_until


class Server:
    """A tracking server whose worker processes are in a process group of its own."""

    def __init__(self, folder: Path):
        self.uri = f"http://127.0.0.1:{free_port()}"
        self.output = folder / "output.txt"
        options = {
            "--host": "127.0.0.1",
            "--port": self.uri.rpartition(":")[2],
            "--workers": "1",
            "--backend-store-uri": f"sqlite:///{folder / 'server.db'}",
            "--artifacts-destination": str(folder / "artifacts"),
        }
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *sum(options.items(), ())],
                cwd=folder,
                env={**os.environ, **ENVIRONMENT, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "0"},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait(self) -> None:
        wait_until(self._answers, self.process)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.uri}/health"):
            return True
        return False

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
