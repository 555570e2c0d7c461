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
    for profile, speed in (("xla", 20.0), ("mixed", 30.0)):
        with tracking.Run(uri, "speed", f"{profile} · dev", system_metrics=False) as run:
            run.params({"profile": profile, "threads": 1})
            times = {tracking.PREDICT_S: 8.0, "time/rescore_s": 2.0}
            run.metrics({**times, tracking.WINDOWS_PER_S: speed, tracking.MICRO_F1: 5 / speed})
            run.metrics({tracking.CHANGED: 3})
            run.tags({"parity.against": "grappler in a", "speed_comparable": "no: resumed"})
    return uri


def test_the_fastest_run_comes_first_and_a_page_is_written(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "new" / "runs.html"
    arguments = ["--tracking-uri", store, "--experiment", "speed"]
    assert console(["runs", *arguments, "--html", str(page)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[-1] == "grappler" and lines[-1] == f"written to {page}"
    rows = [line.split()[3:] for line in lines if "· dev" in line]
    assert rows == [["24.0", "10.0", "0.1667", "3"], ["16.0", "10.0", "0.2500", "3"]]
    assert lines.count(f"  {NOTE}") == 2
    text = page.read_text(encoding="utf-8")
    assert text.count('<th scope="row">') == 2 and f"<small>{NOTE}</small>" in text
    assert console(["runs", *arguments, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [run["profile"] for run in values["runs"]] == ["mixed", "xla"]


def test_a_file_of_others_is_kept(store: str, tmp_path: Path) -> None:
    arguments = ["runs", "--tracking-uri", store, "--experiment", "speed", "--html"]
    page = tmp_path / "runs.html"
    assert [console([*arguments, str(page)]) for _ in range(2)] == [0, 0]
    page.write_text("<!DOCTYPE html><p>mine")
    assert console([*arguments, str(page)]) == 1
    assert page.read_text() == "<!DOCTYPE html><p>mine"


def test_values_that_nq_does_not_write_do_not_hide_the_other_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, page = f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "runs.html"
    for threads, figure in (("2", 0.5), ("1e400", 1e308), ("9" * 5000, -1e308)):
        with tracking.Run(store, "odd", system_metrics=False) as run:
            run.params({"profile": "<u>\x1b" * 1000, "threads": threads})
            names = (tracking.WINDOWS_PER_S, tracking.MICRO_F1, tracking.CHANGED, tracking.PEAK_MB)
            run.metrics(dict.fromkeys((*names, tracking.PREDICT_S), figure))
    options = ["--tracking-uri", store, "--experiment", "odd", "--html", str(page)]
    assert console(["runs", *options]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text and text.count("2 threads") == 1
    assert "<u>" not in page.read_text(encoding="utf-8").partition("json-rows")[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--experiment", "none"], "no experiment 'none'"),
        (["--tracking-uri", "sqlite:///nowhere.db"], "there is no database"),
        (["--html", "file/runs.html"], "file"),
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
    Path("file").write_text("a file")
    assert console(["runs", "--tracking-uri", store, "--experiment", "speed", *options]) == 1
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert message in line
    assert not (tmp_path / "nowhere.db").exists()
