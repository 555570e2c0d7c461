"""Tests of runs on a real server, which hangs and finally dies."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from nq.tracking import start
from nq.tracking.store import ENVIRONMENT
from tests.tracking.mlflow_stores import QUICK_S, FirstRuns, free_port, stored, the_warning, use


@pytest.fixture(scope="module")
def server(first_runs: FirstRuns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    shutil.copyfile(first_runs.database, folder / "server.db")
    running = Server(folder)
    try:
        running.wait()
        yield running
    finally:
        running.kill()


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
                env=os.environ | ENVIRONMENT | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "0"},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait(self) -> None:
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.uri}/health"):
                return
            time.sleep(0.1)
        raise TimeoutError(self.output.read_text())

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.process.wait()


@pytest.mark.slow
def test_run_is_recorded_on_a_server(
    server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    with start(server.uri, "remote") as run:
        use(run, tmp_path)
    assert stored(run).info.status == "FINISHED"
    assert stored(run).data.params == {"profile": "mixed+xla"}
    client = MlflowClient(server.uri)
    assert [f.path for f in client.list_artifacts(run.run_id)] == ["predictions"]
    copy = client.download_artifacts(run.run_id, "predictions/answers.json", str(tmp_path / ".."))
    assert Path(copy).read_text() == "{}"
    assert str(run.how_to_open()).startswith(f"{server.uri}/#/experiments/")
    assert capfd.readouterr().out == ""


HANGING = """
import os, signal, sys, time
from nq import tracking
with tracking.start(sys.argv[1], limits=tracking.Limits(call_s=1.0)) as run:
    assert run.run_id
    os.killpg(int(sys.argv[2]), signal.SIGSTOP)
    begin = time.time()
    run.metrics({"a": 1})
print(begin)
"""


@pytest.mark.slow
def test_server_that_hangs_does_not_delay_exit(server: Server) -> None:
    """MLflow's asynchronous logging waits for a minute at the exit of the process."""
    command = [sys.executable, "-c", HANGING, server.uri, str(server.process.pid)]
    root = Path(__file__).parents[2]
    try:
        process = subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert time.time() - float(process.stdout) < QUICK_S
    finally:
        server.send(signal.SIGCONT)
    (warning,) = process.stderr.splitlines()
    assert "cannot write the metrics: no answer within 1.0 s" in warning


@pytest.mark.slow
def test_server_that_dies_during_the_run_costs_one_warning(  # the last test that needs the server
    server: Server,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with start(server.uri) as run:
        run.params({"profile": "xla"})
        server.kill()
        begin = time.monotonic()
        use(run, tmp_path)
    assert time.monotonic() - begin < QUICK_S
    assert run.run_id is not None
    assert "cannot write the params: [Errno 111] Connection refused" in the_warning(caplog)
    assert capfd.readouterr() == ("", "")
