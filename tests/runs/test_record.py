"""Tests what MLflow has of real runs in a real store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nq import tracking
from nq.config import TrackingConfig
from nq.mlflow_store import DEFAULT_EXPERIMENT, connect
from nq.model.folder import weights_digest
from nq.runs.config import Compute
from nq.runs.job import Job
from nq.runs.run import run
from tests.nq_records import simplified, write_lines

QUESTIONS = 2


@pytest.mark.slow
def test_a_model_is_recorded_for_each_profile(tiny_model: Path, tmp_path: Path) -> None:
    files = [
        write_lines(tmp_path / f"{number}.jsonl", [simplified(number, words=30)])
        for number in range(1, QUESTIONS + 1)
    ]
    uri, compute = f"sqlite:///{tmp_path}/mlflow.db", Compute(batch_size=4)
    job = Job(files, tiny_model, "baseline", tmp_path / "baseline", compute=compute)
    other = replace(job, profile="grappler", output=tmp_path / "grappler", against=job.output)
    results = {str(one.profile): run(one, track=TrackingConfig(uri)) for one in (job, other)}
    client = connect(uri)
    experiment = client.get_experiment_by_name(DEFAULT_EXPERIMENT)
    order = [{"field_name": f"metrics.{tracking.WINDOWS_PER_S}", "ascending": False}]
    models = client.search_logged_models([experiment.experiment_id], order_by=order)
    speeds = {profile: result.windows_per_s for profile, result in results.items()}
    expected = sorted(speeds, key=lambda profile: -round(speeds[profile], 4))
    assert [model.params["profile"] for model in models] == expected
    unchanged = f"metrics.`{tracking.CHANGED}` = 0"
    (model,) = client.search_logged_models([experiment.experiment_id], unchanged)
    assert model.name == f"{tiny_model.name} · grappler"
    assert model.source_run_id == results["grappler"].run_id
    params = {key: model.params[key] for key in ("engine", "precision", "batch_size")}
    assert params == {"engine": "tensorflow", "precision": "float32", "batch_size": "4"}
    assert model.params["windows.max_seq_length"] == "32"
    assert model.tags["weights"] == weights_digest(tiny_model)
    recorded = client.get_run(model.source_run_id)
    figures = {metric.key: metric.value for metric in model.metrics}
    assert figures == recorded.data.metrics
    (dataset,) = [entry.dataset for entry in recorded.inputs.dataset_inputs]
    assert dataset.name == "1.jsonl and 1 more file"
    assert all(str(file) in dataset.source for file in files)
    assert {(m.dataset_name, m.dataset_digest) for m in model.metrics} == {
        (dataset.name, dataset.digest)
    }
    description = recorded.data.tags[tracking.DESCRIPTION]
    answers = f"`{tiny_model.name}` answers 2 questions of `1.jsonl`"
    assert description == f"{answers} under the profile `grappler`."
