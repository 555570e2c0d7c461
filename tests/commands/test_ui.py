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

import pytest

from nq import child, tracking
from nq.commands.ui import VIEW_TAG
from nq.config import TrackingConfig
from nq.mlflow_store import DEFAULT_EXPERIMENT, connect
from tests.child_processes import free_port, wait_until

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


def test_the_printed_address_has_a_table_with_the_saved_view(store: str, tmp_path: Path) -> None:
    """No process runs the Python files of the working folder."""
    for name in ("html", "json", "mlflow", "uvicorn"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')", encoding="utf-8")
    port = free_port()
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
        columns = {"metrics.`micro_f1`", "params.`limit`", "tags.`speed_comparable`"}
        assert columns <= set(state["selectedColumns"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143

    def is_closed() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED

    wait_until(is_closed)  # the server's own processes end after it
    assert not (tmp_path / "ran").exists()
