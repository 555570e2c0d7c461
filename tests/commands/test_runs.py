"""Tests ``nq runs`` with a store of real runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nq import tracking
from nq.commands.main import console

NOTE = "changed from grappler in a; speed not comparable: resumed; 1 thread"
pytestmark = pytest.mark.slow  # importing MLflow takes seconds


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = f"sqlite:///{tmp_path_factory.mktemp('runs')}/mlflow.db"
    for profile, speed, trials_s in (("xla", 20.0, 0.0), ("mixed", 30.0, 251.0)):
        with tracking.Run(uri, "speed", f"{profile} · dev", system_metrics=False) as run:
            run.params({"profile": profile, "threads": 1})
            times = {tracking.PREDICT_S: 8.0, "time/rescore_s": 2.0, "time/trials_s": trials_s}
            run.metrics({**times, tracking.WINDOWS_PER_S: speed, tracking.MICRO_F1: 5 / speed})
            run.metrics({tracking.CHANGED: 3})
            run.tags({"parity.against": "grappler in a", "speed_comparable": "no: resumed"})
    return uri


def test_the_fastest_run_is_the_first(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--tracking-uri", store, "--experiment", "speed"]
    assert console(["runs", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[-1] == "grappler"
    rows = [line.split()[3:] for line in lines if "· dev" in line]
    assert rows == [["24.0", "10.0", "251", "0.1667", "3"], ["16.0", "10.0", "0.2500", "3"]]
    assert lines.count(f"  {NOTE}") == 2
    assert console(["runs", *arguments, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [run["profile"] for run in values["runs"]] == ["mixed", "xla"]


def test_values_that_nq_does_not_write_do_not_hide_the_other_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = f"sqlite:///{tmp_path}/mlflow.db"
    for threads, figure in (("2", 0.5), ("1e400", 1e308), ("9" * 5000, -1e308)):
        with tracking.Run(store, "odd", system_metrics=False) as run:
            run.params({"profile": "<u>\x1b" * 1000, "threads": threads})
            names = (tracking.WINDOWS_PER_S, tracking.MICRO_F1, tracking.CHANGED, tracking.PEAK_MB)
            run.metrics(dict.fromkeys((*names, tracking.PREDICT_S), figure))
    assert console(["runs", "--tracking-uri", store, "--experiment", "odd"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text and text.count("2 threads") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--experiment", "none"], "no experiment 'none'"),
        (["--tracking-uri", "sqlite:///nowhere.db"], "there is no database"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    options: list[str],
    message: str,
    store: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert console(["runs", "--tracking-uri", store, "--experiment", "speed", *options]) == 1
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert message in line
    assert not (tmp_path / "nowhere.db").exists()
