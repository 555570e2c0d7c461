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


def test_every_entry_point_records_in_the_run_that_is_given(
    tiny_model: Path, tmp_path: Path
) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    sizes = ["max-seq-length=32", "max-query-length=8", "doc-stride=16", "batch-size=2", "limit=4"]
    for entry_point, *own in (
        ("answer", f"model={tiny_model}", "limit=2", "profile=xla+mixed", f"root={tmp_path}/runs"),
        ("compare", f"model={tiny_model}", "limit=1", "rounds=1", f"output={tmp_path}/compared"),
        ("train", f"init={tiny_model}", f"output={tmp_path}/model", *sizes),
    ):
        done = mlflow_run(uri, entry_point, f"data={bundled_sample()}", *own)
        assert done.returncode == 0, done.stderr
    client = connect(uri)
    assert {one.name for one in client.search_experiments()} == {EXPERIMENT, "Default"}
    experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
    training, *rows, whole, run = client.search_runs([experiment], order_by=["start_time DESC"])
    assert rows and {one.info.status for one in (training, *rows, whole, run)} == {"FINISHED"}
    params, tags = run.data.params, run.data.tags
    assert (params["profile"], tags["profile"]) == ("xla+mixed", "mixed+xla")
    assert (params["precision"], run.data.metrics[tracking.QUESTIONS]) == ("bfloat16", 2)
    assert tags["mlflow.source.type"] == "PROJECT"
    assert "predictions.json" in {one.path for one in client.list_artifacts(run.info.run_id)}
    assert {one.data.tags[tracking.PARENT] for one in rows} == {whole.info.run_id}
    assert "compare.html" in {one.path for one in client.list_artifacts(whole.info.run_id)}
    assert "train/final_loss" in training.data.metrics
