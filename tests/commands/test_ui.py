"""Tests ``nq ui`` with MLflow's own server."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import psutil
import pytest

from nq import tracking
from nq.commands.ui import VIEW_TAG
from nq.config import TrackingConfig
from nq.mlflow_store import DEFAULT_EXPERIMENT, connect
from nq.worker import ROOT
from tests.support.child_processes import free_port, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its experiment has the view of an earlier version."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('ui')}/mlflow.db"
    with tracking.Run(TrackingConfig(uri), name="baseline") as run:
        run.metrics({tracking.MICRO_F1: 0.5})
    client = connect(uri)
    experiment = client.get_experiment_by_name(DEFAULT_EXPERIMENT)
    client.set_experiment_tag(experiment.experiment_id, VIEW_TAG, "{}")
    return uri


def start(port: int, folder: Path, **variables: str) -> subprocess.Popen[str]:
    own = {"PYTHONPATH": ROOT, "http_proxy": "http://192.0.2.1:9"}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "nq", "ui", "--port", str(port)],
        cwd=folder,
        env={**os.environ, **own, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_printed_address_has_a_table_with_the_saved_view(store: str, tmp_path: Path) -> None:
    """No process runs the Python files of the working folder."""
    for name in ("html", "json", "mlflow", "uvicorn"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')", encoding="utf-8")
    port = free_port()
    with start(port, tmp_path, MLFLOW_TRACKING_URI=store) as process:
        assert process.stdout and process.stderr
        address = urllib.parse.urlsplit(process.stdout.readline().strip())
        page = urllib.parse.urlsplit(address.fragment)
        query = urllib.parse.parse_qs(page.query)
        assert query["workflowType"] == ["machine_learning"]
        experiment_id = page.path.split("/")[2]
        api = f"http://{address.netloc}/ajax-api/2.0/mlflow/experiments/get"
        with urllib.request.urlopen(f"{api}?experiment_id={experiment_id}") as answer:
            tags = {tag["key"]: tag["value"] for tag in json.load(answer)["experiment"]["tags"]}
        state = json.loads(tags[f"mlflow.sharedViewState.{query['viewStateShareKey'][0]}"])
        columns = {"metrics.`micro_f1`", "params.`limit`", "tags.`speed_comparable`"}
        assert columns <= set(state["selectedColumns"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        assert "MLflow" in process.stderr.readline()  # before the address, which takes long

    wait_until(lambda: is_closed(port))  # the server's own processes end after it
    assert not (tmp_path / "ran").exists()


def is_closed(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def test_a_killed_command_leaves_no_server_and_no_argument_tells_the_store(
    store: str, tmp_path: Path
) -> None:
    port = free_port()
    with start(port, tmp_path, MLFLOW_TRACKING_URI=store) as process:
        assert process.stdout and process.stdout.readline()
        servers = psutil.Process(process.pid).children(recursive=True)
        assert servers and store not in " ".join(word for one in servers for word in one.cmdline())
        process.kill()
    wait_until(lambda: is_closed(port) and not any(one.is_running() for one in servers))
