"""Runs the entry points of MLproject with MLflow's own command, in a store and at a server."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nq import tracking
from nq.bundle import bundled_sample
from nq.mlflow_store import connect
from tests.support.child_processes import ROOT
from tests.support.mlflow_server import Server

pytestmark = pytest.mark.slow

EXPERIMENT = "thesis"


def mlflow_run(uri: str, entry_point: str, *parameters: str) -> subprocess.CompletedProcess[str]:
    """Runs an entry point; its folder is that of the project."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", "mlflow", "run", str(ROOT), "-e", entry_point]
    command += ["--env-manager", "local", "--experiment-name", EXPERIMENT]
    command += [word for one in parameters for word in ("-P", one)]
    variables = {**os.environ, "PATH": path, "MLFLOW_TRACKING_URI": uri}
    variables |= {"MLFLOW_EXPERIMENT_NAME": "other", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def test_an_answering_and_a_failed_one_at_a_server(tiny_model: Path, tmp_path: Path) -> None:
    own = [f"model={tiny_model}", f"root={tmp_path / 'runs'}", "limit=2", "profile=xla+mixed"]
    server = Server(tmp_path)
    try:
        server.wait()
        done = mlflow_run(server.uri, "answer", f"data={bundled_sample()}", *own)
        assert done.returncode == 0, done.stderr
        failed = mlflow_run(server.uri, "answer", f"data={tmp_path / 'no.jsonl'}", *own)
        assert failed.returncode and "no.jsonl" in failed.stderr
        client = connect(server.uri)
        experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
        bad, run = client.search_runs([experiment])
        assert (bad.info.status, run.info.status) == ("FAILED", "FINISHED")
        assert run.data.tags["mlflow.source.type"] == "PROJECT"
        assert run.data.params["profile"] == "xla+mixed"  # as it was given
        assert (run.data.params["precision"], run.data.tags["profile"]) == ("bfloat16", "mixed+xla")
        assert run.data.metrics[tracking.QUESTIONS] == 2
        files = {file.path for file in client.list_artifacts(run.info.run_id)}
        assert {"predictions.json", "metrics.json"} <= files
        assert [one.name for one in client.search_experiments()] == [EXPERIMENT, "Default"]
    finally:
        server.send(signal.SIGKILL)
        server.process.wait()


def test_a_comparison_and_a_training_in_a_local_store(tiny_model: Path, tmp_path: Path) -> None:
    uri, data = f"sqlite:///{tmp_path}/mlflow.db", f"data={bundled_sample()}"
    own = [f"model={tiny_model}", "limit=1", "rounds=1", f"output={tmp_path / 'compared'}"]
    compared = mlflow_run(uri, "compare", data, *own)
    assert compared.returncode == 0, compared.stderr
    own = [f"init={tiny_model}", "limit=4", "batch-size=2", f"output={tmp_path / 'model'}"]
    own += ["max-seq-length=32", "max-query-length=8", "doc-stride=16"]
    trained = mlflow_run(uri, "train", data, *own)
    assert trained.returncode == 0, trained.stderr
    client = connect(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
    training, *rows, whole = client.search_runs([experiment], order_by=["start_time DESC"])
    assert rows and {run.info.status for run in (training, whole, *rows)} == {"FINISHED"}
    assert {run.data.tags[tracking.PARENT] for run in rows} == {whole.info.run_id}
    assert "compare.html" in {file.path for file in client.list_artifacts(whole.info.run_id)}
    assert "train/final_loss" in training.data.metrics
