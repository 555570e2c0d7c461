"""Runs the entry points of MLproject with MLflow's own command, in a store."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nq import tracking
from nq.bundle import bundled_sample
from nq.mlflow_store import connect
from tests.support.child_processes import ROOT

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


def test_an_answering_keeps_what_was_given(tiny_model: Path, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    own = [f"model={tiny_model}", f"root={tmp_path / 'runs'}", "limit=2", "profile=xla+mixed"]
    done = mlflow_run(uri, "answer", f"data={bundled_sample()}", *own)
    assert done.returncode == 0, done.stderr
    client = connect(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
    (run,) = client.search_runs([experiment])
    params, tags = run.data.params, run.data.tags
    assert (run.info.status, tags["mlflow.source.type"]) == ("FINISHED", "PROJECT")
    assert (params["profile"], tags["profile"]) == ("xla+mixed", "mixed+xla")
    assert (params["precision"], run.data.metrics[tracking.QUESTIONS]) == ("bfloat16", 2)
    files = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert {"predictions.json", "metrics.json"} <= files
    assert [one.name for one in client.search_experiments()] == [EXPERIMENT, "Default"]


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
