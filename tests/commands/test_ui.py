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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from nq import tracking
from nq.commands.ui import VIEW_TAG
from nq.config import TrackingConfig
from nq.mlflow_store import DEFAULT_EXPERIMENT, connect
from nq.worker import ROOT
from tests.support.child_processes import free_port, wait_until
from tests.support.chromium import Browser, needs_chromium

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its experiment has the view of an earlier version."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('ui')}/mlflow.db"
    names = "long_f1", tracking.PREDICT_S, tracking.QUESTIONS, tracking.SIZE_MB
    with tracking.Run(TrackingConfig(uri), name="baseline · small · dev.jsonl") as run:
        run.params({tracking.PROFILE: "baseline"})
        run.tags({tracking.SPEED_COMPARABLE: "yes"})
        run.dataset(["dev.jsonl"], ["0123456789ab" * 5])
        run.model("small · baseline", {}, {})
        run.metrics(dict.fromkeys([*names, tracking.WINDOWS_PER_S, tracking.MICRO_F1], 0.5))
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


@dataclass(frozen=True)
class Running:
    """``nq ui`` that serves a store, and the addresses that it has printed."""

    process: subprocess.Popen[str]
    port: int
    runs: str
    models: str
    folder: Path


@pytest.fixture(scope="module")
def running(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Runs in a folder with files that have the names of modules; the last of its tests ends it."""
    port, folder = free_port(), tmp_path_factory.mktemp("working")
    for name in ("html", "json", "mlflow", "uvicorn"):
        (folder / f"{name}.py").write_text("open('ran', 'w')", encoding="utf-8")
    with start(port, folder, MLFLOW_TRACKING_URI=store) as process:
        assert process.stdout
        runs, models = (process.stdout.readline().strip() for _ in range(2))
        yield Running(process, port, runs, models, folder)
        process.terminate()


def test_the_printed_address_has_a_table_with_the_saved_view(running: Running) -> None:
    address = urllib.parse.urlsplit(running.runs)
    page = urllib.parse.urlsplit(address.fragment)
    query = urllib.parse.parse_qs(page.query)
    assert query["workflowType"] == ["machine_learning"]
    experiment_id = page.path.split("/")[2]
    api = f"http://{address.netloc}/ajax-api/2.0/mlflow/experiments/get"
    with urllib.request.urlopen(f"{api}?experiment_id={experiment_id}") as answer:
        tags = {tag["key"]: tag["value"] for tag in json.load(answer)["experiment"]["tags"]}
    state = json.loads(tags[f"mlflow.sharedViewState.{query['viewStateShareKey'][0]}"])
    columns = {"metrics.`micro_f1`", "params.`profile`", "tags.`speed_comparable`"}
    assert columns <= set(state["selectedColumns"])
    assert urllib.parse.urlsplit(running.models).netloc == address.netloc


TABLE = "document.querySelector('.ag-root')?.getBoundingClientRect().right ?? 0"
HEADERS = """[...document.querySelectorAll(".ag-header-cell")].map(
    cell => [cell.getBoundingClientRect().right, cell.innerText.trim()])"""
CHARTS = """[...document.querySelectorAll("[data-testid=experiment-view-compare-runs-card]")].map(
    card => card.innerText.split("\\n")[1]?.trim())"""


@needs_chromium
def test_the_first_columns_and_charts_of_mlflows_pages(running: Running, chromium: Browser) -> None:
    """At its first visit a browser has MLflow's assistant at the right, which leaves less room."""
    columns = ["Run Name", "Created", "questions", "micro_f1", "predict_s", "speed_comparable"]

    def shown() -> list[str]:
        """Returns the columns that are whole in view."""
        end = chromium.run(TABLE)
        return [name for right, name in sorted(chromium.run(HEADERS)) if name and right <= end]

    chromium.size(1500)
    chromium.open(running.runs)
    wait_until(lambda: shown() == columns)
    chromium.run("localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false')")
    chromium.open("about:blank")  # a page is not loaded where only the part after # differs
    chromium.open(running.runs)
    wait_until(lambda: shown()[:8] == [*columns, "profile", "Dataset"])
    chromium.open("about:blank")
    chromium.open(running.models)
    wait_until(lambda: chromium.run(CHARTS)[:3] == ["micro_f1", "windows_per_s", "size_mb"])


def test_sigterm_ends_the_server_and_no_file_of_the_working_folder_was_run(
    running: Running,
) -> None:
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait() == 143
    assert running.process.stderr
    assert "MLflow" in running.process.stderr.readline()  # before the address, which takes long
    wait_until(lambda: is_closed(running.port))  # the server's own processes end after it
    assert not (running.folder / "ran").exists()


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
