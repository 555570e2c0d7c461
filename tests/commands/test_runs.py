"""Tests ``nq runs`` with a store of real runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nq import tracking
from nq.commands.runs import main

pytestmark = pytest.mark.slow  # importing MLflow takes seconds


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = f"sqlite:///{tmp_path_factory.mktemp('runs')}/mlflow.db"
    for profile, total_s, micro_f1 in (("xla", 50.0, 0.25), ("mixed", 30.0, 0.125)):
        with tracking.start(uri, "speed", f"{profile} · dev", system_metrics=False) as run:
            run.params({"profile": profile})
            run.metrics({"time/total_s": total_s, "quality/micro_f1": micro_f1})
    return uri


@pytest.mark.parametrize(
    ("options", "profiles"), [([], ["mixed", "xla"]), (["--sort", "micro_f1"], ["xla", "mixed"])]
)
def test_runs_are_sorted(
    options: list[str], profiles: list[str], store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--tracking-uri", store, "--experiment", "speed", *options]
    assert main(arguments) == 0
    head, *rows, link = capsys.readouterr().out.splitlines()
    assert "total s" in head and "viewStateShareKey=nq" in link
    assert [row.split()[1] for row in rows] == profiles
    assert main([*arguments, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [run["profile"] for run in values["runs"]] == profiles


def test_the_page_is_written(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "new" / "runs.html"
    assert main(["--tracking-uri", store, "--experiment", "speed", "--html", str(page)]) == 0
    assert page.read_text(encoding="utf-8").count("<circle") == 2
    assert f"written to {page}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--experiment", "none"], 1, "no experiment 'none'"),
        (["--tracking-uri", "sqlite:///nowhere.db"], 1, "there is no database"),
        (["--html", "."], 1, "."),
        (["--html", "file/runs.html"], 1, "file"),
        (["--sort", "speed"], 2, "invalid choice: 'speed'"),
        (["extra"], 2, "unrecognized arguments: extra"),
    ],
)
def test_wrong_usage_is_one_line(
    options: list[str],
    code: int,
    message: str,
    store: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("a file")
    try:
        result = main(["--tracking-uri", store, "--experiment", "speed", *options])
    except SystemExit as error:
        result = int(str(error.code))
    assert result == code
    errors = capsys.readouterr().err
    assert message in errors.splitlines()[-1] and "Traceback" not in errors
    assert not (tmp_path / "nowhere.db").exists()
