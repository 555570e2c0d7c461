"""The sweep: rows from results, the table, and a real sweep over two profiles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import sweep
from nq.bundle import bundled_sample

pytestmark = pytest.mark.extended


def test_a_real_sweep(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = f"sqlite:///{tmp_path}/mlflow.db"
    options = f"--profiles grappler --rounds 2 --limit 3 --tracking-uri {store} --json".split()
    paths = ["--data", bundled_sample(), "--model", tiny_model, "--output", tmp_path / "out"]
    assert sweep.main([*map(str, paths), *options]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["profile"] for row in rows] == ["baseline", "grappler"]
    assert rows[0]["change"] == 0 and rows[1]["changed_share"] == 0
    assert all(row["memory_mb"] > 100 and row["windows_per_s"] > 0 for row in rows)
    assert (tmp_path / "out" / "sweep.png").stat().st_size > 1000
    written = json.loads((tmp_path / "out" / "sweep.json").read_text(encoding="utf-8"))
    assert (written["rounds"], written["rows"]) == (2, rows)
    assert written["machine"]["topology"]["cores"] >= 1

    from mlflow import MlflowClient

    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("nq")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert {run.data.params["profile"] for run in runs} == {"baseline", "grappler"}
    assert len({run.data.tags["study"] for run in runs}) == 1
    for run in runs:
        assert run.info.end_time - run.info.start_time > 1000 * run.data.metrics["time/total_s"]
        assert len(run.data.metrics) <= 20
