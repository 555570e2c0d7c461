"""Tests ``nq ui`` with MLflow's own server."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from nq import child, tracking
from nq.commands.main import console

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = f"sqlite:///{tmp_path_factory.mktemp('ui')}/mlflow.db"
    with tracking.Run(uri, name="baseline", system_metrics=False) as run:
        run.metrics({tracking.MICRO_F1: 0.5})
    return uri


def test_the_printed_address_has_a_table_with_the_saved_view(store: str, tmp_path: Path) -> None:
    """No process runs the Python files of the working folder."""
    for name in ("html", "json", "mlflow", "uvicorn"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["-P", "-m", "nq", "ui", "--tracking-uri", store, "--port", str(port)]
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": child.ROOT, "http_proxy": "http://192.0.2.1:9"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        address = urllib.parse.urlsplit(process.stdout.readline().strip())
        page = urllib.parse.urlsplit(address.fragment)
        query = urllib.parse.parse_qs(page.query)
        assert query["workflowType"] == ["machine_learning"]
        experiment_id = page.path.split("/")[2]
        api = f"http://{address.netloc}/ajax-api/2.0/mlflow/experiments/get"
        with urllib.request.urlopen(f"{api}?experiment_id={experiment_id}") as answer:
            tags = {tag["key"]: tag["value"] for tag in json.load(answer)["experiment"]["tags"]}
        state = json.loads(tags[f"mlflow.sharedViewState.{query['viewStateShareKey'][0]}"])
        assert "metrics.`micro_f1`" in state["selectedColumns"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    for _ in range(60):  # the server's own processes end after it
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED:
                break
        time.sleep(0.5)
    else:
        pytest.fail("the server still listens")
    assert not (tmp_path / "ran").exists()


def test_what_cannot_be_opened_is_one_line(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert console(["ui", "--tracking-uri", store, "--port", port]) == 1
    assert console(["ui", "--tracking-uri", store, "--experiment", "none"]) == 1
    assert console(["ui", "--tracking-uri", "sqlite:///nowhere.db"]) == 1
    in_use, none, nowhere = capsys.readouterr().err.splitlines()
    assert "is in use: give another --port" in in_use
    assert "no experiment 'none'" in none and "there is no database" in nowhere
