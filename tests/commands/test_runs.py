"""Tests ``nq runs`` with a store of real runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nq import tracking
from nq.commands.main import console

pytestmark = pytest.mark.slow  # importing MLflow takes seconds


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = f"sqlite:///{tmp_path_factory.mktemp('runs')}/mlflow.db"
    for profile, total_s, micro_f1 in (("xla", 50.0, 0.25), ("mixed", 30.0, 0.125)):
        with tracking.Run(uri, "speed", f"{profile} · dev", system_metrics=False) as run:
            run.params({"profile": profile})
            run.metrics({"time/total_s": total_s, "quality/micro_f1": micro_f1})
    return uri


def test_runs_are_sorted_and_a_page_is_written(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "new" / "runs.html"
    arguments = ["--tracking-uri", store, "--experiment", "speed"]
    assert console(["runs", *arguments, "--html", str(page)]) == 0
    head, *rows, _, written = capsys.readouterr().out.splitlines()
    assert "total s" in head and written == f"written to {page}"
    assert [row.split()[1] for row in rows] == ["mixed", "xla"]
    assert page.read_text(encoding="utf-8").count("<circle") == 2
    assert console(["runs", *arguments, "--sort", "micro_f1", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [run["profile"] for run in values["runs"]] == ["xla", "mixed"]


def test_a_file_of_others_is_kept(store: str, tmp_path: Path) -> None:
    arguments = ["runs", "--tracking-uri", store, "--experiment", "speed", "--html"]
    page = tmp_path / "runs.html"
    assert [console([*arguments, str(page)]) for _ in range(2)] == [0, 0]
    page.write_text("<!DOCTYPE html><p>mine")
    assert console([*arguments, str(page)]) == 1
    assert page.read_text() == "<!DOCTYPE html><p>mine"


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
