"""The sweep: rows from reports, the table, and a real one over two profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import sweep
from nq.bundle import bundled_sample
from nq.errors import Error
from nq.inference.profile import PACKAGES


def report(predict_s: float, wall_s: float = 20.0, micro_f1: float | None = 0.5) -> dict[str, Any]:
    return {
        "examples": 10,
        "windows": 100,
        "windows_per_s": 100 / predict_s,
        "time": {"preprocess_s": 2.0, "predict_s": predict_s, "postprocess_s": 1.0},
        "metrics": {} if micro_f1 is None else {"micro_f1": micro_f1},
        "parity": {"changed_share": 0.01, "max_drift": 0.125},
        "wall_s": wall_s,
        "memory_mb": 700.0,
    }


BASELINE = [report(10.0), report(12.0), report(11.0)]


def test_a_row_is_the_cold_first_and_the_median_of_the_warm() -> None:
    row = sweep.summed_up("mixed", [report(5.0, 30.0), report(6.0), report(5.5)], BASELINE)
    assert (row.cold_s, row.warm_s, row.change) == pytest.approx((28.0, 5.5, -0.5))
    assert row.windows_per_s == pytest.approx(100 / 5.5)
    assert row.examples_per_s == pytest.approx(10 / 8.5)


def test_the_table_has_a_line_for_each_profile() -> None:
    rows = [
        sweep.summed_up("baseline", BASELINE, BASELINE),
        sweep.summed_up("mixed", [report(5.5, micro_f1=None)], BASELINE),
    ]
    lines = sweep.table(rows).splitlines()
    assert lines[2] == "| baseline | 18.0 | 11.0 | +0% | 9.1 | 0.5000 | 1.0% | 0.12 | 700 |"
    assert lines[3] == "| mixed | 18.0 | 5.5 | -50% | 18.2 |  | 1.0% | 0.12 | 700 |"


def test_a_profile_whose_package_is_missing_is_left_out_and_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PACKAGES, "openvino", ("no_such_package",))
    assert sweep._profiles(["openvino", "mixed", "mixed"]) == ["baseline", "mixed"]
    assert "nq: openvino left out: no_such_package not installed" in capsys.readouterr().err


def test_a_run_that_fails_ends_the_sweep_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(Error, match=r"profile mixed: nq: error: .*nowhere"):
        sweep.measured("mixed", ["--data", str(tmp_path / "nowhere.jsonl"), "--no-track"])


def test_a_real_sweep(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = f"sqlite:///{tmp_path}/mlflow.db"
    asked = f"--profiles grappler --rounds 2 --limit 3 --tracking-uri {store} --json".split()
    places = ["--data", bundled_sample(), "--model", tiny_model, "--output", tmp_path / "out"]
    code = sweep.main([*map(str, places), *asked])
    assert code == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["profile"] for row in rows] == ["baseline", "grappler"]
    assert rows[0]["change"] == 0 and rows[1]["changed_share"] == 0
    assert all(row["memory_mb"] > 100 and row["windows_per_s"] > 0 for row in rows)
    assert (tmp_path / "out" / "sweep.png").stat().st_size > 1000

    from mlflow import MlflowClient

    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("nq")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert {run.data.params["profile"] for run in runs} == {"baseline", "grappler"}
    assert len({run.data.tags["sweep"] for run in runs}) == 1
