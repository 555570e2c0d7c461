"""The sweep: rows from results, the table, and a real sweep over two profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import sweep
from nq import extras
from nq.bundle import bundled_sample
from nq.errors import Error
from nq.inference.profile import Profile
from nq.tracking import view


def result(predict_s: float, wall_s: float = 20.0, micro_f1: float | None = 0.5) -> dict[str, Any]:
    """Returns the result of ``sweep.answer`` for a run of so many seconds."""
    seconds = {"preprocess_wait_s": 2.0, "read_s": 0.5, "predict_s": predict_s}
    return {
        "examples": 10,
        "windows": 100,
        "windows_per_s": 100 / predict_s,
        "time": {**seconds, "rescore_s": 0.0, "postprocess_s": 0.5, "total_s": 5.0},
        "metrics": {} if micro_f1 is None else {"micro_f1": micro_f1},
        "parity": {"changed": 3, "changed_share": 0.01, "max_drift": 0.125},
        "wall_s": wall_s,
        "peak_memory_bytes": 700 << 20,
    }


BASELINE = [result(10.0), result(12.0), result(11.0)]


def test_a_row_has_the_cold_time_of_the_first_round_and_the_median_warm_time() -> None:
    row = sweep.summarize("mixed", [result(5.0, 30.0), result(6.0), result(5.5)], BASELINE)
    assert (row.cold_s, row.warm_s, row.change) == pytest.approx((28.0, 5.5, -0.5))
    assert row.windows_per_s == pytest.approx(100 / 5.5)
    assert row.examples_per_s == pytest.approx(10 / 8.5)
    assert row.memory_mb == 700


def test_rescoring_counts_as_warm_time() -> None:
    runs = [result(5.0)]
    runs[0]["time"]["rescore_s"] = 1.5
    assert sweep.summarize("mixed+rescore", runs, BASELINE).warm_s == pytest.approx(6.5)


def test_the_table_has_a_line_for_each_profile() -> None:
    rows = [
        sweep.summarize("baseline", BASELINE, BASELINE),
        sweep.summarize("mixed", [result(5.5, micro_f1=None)], BASELINE),
    ]
    lines = sweep.table(rows).splitlines()
    assert lines[2] == "| baseline | 18.0 | 11.0 | +0% | 9.1 | 0.5000 | 1.0% | 0.12 | 700 |"
    assert lines[3] == "| mixed | 18.0 | 5.5 | -50% | 18.2 |  | 1.0% | 0.12 | 700 |"
    assert len(lines) == 4


def test_a_profile_whose_package_is_missing_is_left_out_with_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(extras.EXTRAS, "openvino", ("no_such_package",))
    profiles = [Profile.parse(name) for name in ("openvino", "mixed", "mixed")]
    assert sweep.installed(profiles) == ["baseline", "mixed"]
    assert "nq: openvino left out: no_such_package not installed" in capsys.readouterr().err


def test_all_default_profiles_are_possible() -> None:
    assert len({str(Profile.parse(name)) for name in sweep.BEYOND_THESIS}) == 8


def test_a_run_that_fails_ends_the_sweep_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(Error, match=r"profile mixed: nq: error: .*nowhere"):
        sweep.answer("mixed", ["--data", str(tmp_path / "nowhere.jsonl"), "--no-track"])


@pytest.mark.slow
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


def test_a_row_is_recorded_under_the_names_of_runs() -> None:
    metrics = sweep.metrics(sweep.summarize("mixed", [result(5.0)], BASELINE))
    assert set(view.state()["selectedColumns"]) <= {
        *(f"metrics.`{name}`" for name in metrics),
        "params.`profile`",
        "tags.`speed_comparable`",
    }
    assert metrics["parity/changed_answers"] == 3
