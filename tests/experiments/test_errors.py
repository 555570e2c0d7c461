"""The command on real runs of a tiny model, with a real tracking store, and on what is no run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from experiments.errors.__main__ import PAGE, main
from nq.bundle import bundled_sample
from nq.config import DecisionConfig
from nq.inference.profile import Profile
from nq.model.checkpoint import load_settings
from nq.runs.job import Job, Report
from nq.runs.run import run
from nq.tracking.store import import_mlflow

ROOT = Path(__file__).parents[2]
EXAMPLES = 8


@dataclass(frozen=True)
class Tracked:
    """A folder with data, model, store and one finished run."""

    folder: Path
    result: dict[str, Any]

    @property
    def run(self) -> Path:
        return self.folder / "run"


def command(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("MLFLOW")}
        | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def records() -> list[dict[str, Any]]:
    lines = bundled_sample().read_text(encoding="utf-8").splitlines()[:EXAMPLES]
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [record | {"source": f"made {i % 2}"} for i, record in enumerate(found)]


def write(path: Path, found: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in found), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tracked(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Tracked:
    """Answers everything, so that there are errors."""
    folder = tmp_path_factory.mktemp("tracked")
    write(folder / "data.jsonl", records())
    shutil.copytree(tiny_model, folder / "model")
    done = command(
        *("nq.answer", "--data", "data.jsonl", "--model", "model", "--output", "run"),
        *("--keep-scores", "--json", "--long-threshold=-1e9", "--short-threshold=-1e9"),
        folder=folder,
    )
    assert done.returncode == 0, done.stderr
    return Tracked(folder, json.loads(done.stdout))


@pytest.fixture
def copied(tracked: Tracked, tmp_path: Path) -> Tracked:
    """The same, to be spoiled; its job still names the files of the other one."""
    shutil.copytree(tracked.folder, tmp_path / "copy")
    return Tracked(tmp_path / "copy", tracked.result)


def answered(tiny_model: Path, folder: Path, found: list[dict[str, Any]]) -> Report:
    job = Job(
        (str(write(folder / "data.jsonl", found)),),
        tiny_model,
        Profile(),
        load_settings(tiny_model).windows,
        DecisionConfig(),
        batch_size=16,
        output=folder / "run",
    )
    return run(job)


def test_the_page_becomes_an_artifact_of_the_run(tracked: Tracked) -> None:
    done = command("experiments.errors", "run", "--json", folder=tracked.folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["run_id"] == tracked.result["run_id"]
    assert told["examples"] == EXAMPLES
    metrics = tracked.result["metrics"]
    for kind in ("long", "short"):
        for name in ("precision", "recall", "f1"):
            assert (told[kind][name] or 0) == pytest.approx(metrics[f"{kind}-answer-{name}"])
        assert list(told[kind]["bounds"]) == ["contexts", "windows", "positions"]
    assert {v["long"]["right"] is not None for v in told["splits"]["source"].values()} == {True}
    assert list(told["splits"]["source"]) == ["made 0", "made 1"]
    assert (tracked.run / PAGE).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")

    import_mlflow()
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tracked.folder / 'mlflow.db'}")
    names = {artifact.path for artifact in client.list_artifacts(told["run_id"])}
    assert {PAGE, "job.json", "predictions.json"} <= names
    assert client.get_run(told["run_id"]).info.status == "FINISHED"


def test_tables_on_stdout(copied: Tracked, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(copied.run), "--no-track", "--show", "1"]) == 0
    out = capsys.readouterr().out
    for title in ("answers", "positions", "gold block", "question", "source", "surest long"):
        assert f"\n{title}" in out, title
    assert f"written to {copied.run / PAGE}" in out
    assert "see the run" not in out


def test_without_scores_the_rest_is_shown(
    copied: Tracked, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(copied.run / "scores")
    assert main([str(copied.run), "--no-track"]) == 0
    out = capsys.readouterr().out
    assert "--keep-scores" in out
    assert "\npositions" not in out
    assert "\nwindows" in out


def test_moved_data_and_model_are_found_again(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = answered(tiny_model, tmp_path, records())
    assert not (report.output / "scores").exists()
    new = tmp_path / "new.jsonl"
    (tmp_path / "data.jsonl").rename(new)
    assert main([str(report.output)]) == 1
    assert "--data" in the_line(capsys)
    shutil.copytree(tiny_model, tmp_path / "model")
    arguments = ("--data", str(new), "--model", str(tmp_path / "model"))
    assert main([str(report.output), *arguments]) == 0
    capsys.readouterr()


def the_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("nq: error: ")
    return err


def change_job(path: Path, *keys: str, to: object) -> None:
    job = json.loads((path / "job.json").read_text())
    inside = job
    for key in keys[:-1]:
        inside = inside[key]
    inside[keys[-1]] = to
    (path / "job.json").write_text(json.dumps(job))


def forget_a_prediction(path: Path) -> None:
    found = json.loads((path / "predictions.json").read_text())
    found["predictions"].pop()
    (path / "predictions.json").write_text(json.dumps(found))


def half(path: Path) -> None:
    (path / "job.json").unlink()
    (path / "scores").rename(path / "results")


def other_data(path: Path) -> None:
    data = write(path / "other.jsonl", records()[:2])
    change_job(path, "job", "files", to=[str(data)])


def other_tokenizer(path: Path) -> None:
    model = path.parent / "model"
    with (model / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("zoo\n")
    change_job(path, "job", "model", to=str(model))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (shutil.rmtree, "is no folder"),
        (lambda p: (p / "job.json").unlink(), "is no run of nq answer"),
        (lambda p: (p / "metrics.json").unlink(), "holds no metrics.json"),
        (half, "goes on where it stopped"),
        (lambda p: (p / "job.json").write_text("{"), "is broken"),
        (lambda p: (p / "job.json").write_text("[]"), "no JSON object"),
        (lambda p: (p / "job.json").write_text("{}"), "another version"),
        (lambda p: change_job(p, "job", "windows", "hop", to=1), "another version"),
        (lambda p: change_job(p, "job", "files", to=["gone.jsonl"]), "with --data"),
        (lambda p: change_job(p, "job", "model", to="gone"), "with --model"),
        (other_data, "is not what the run read"),
        (other_tokenizer, "is not the one of the run"),
        (lambda p: (p / "predictions.json").unlink(), "predictions.json"),
        (forget_a_prediction, "has no example"),
        (lambda p: next((p / "scores").glob("*.npz")).unlink(), "not complete"),
    ],
)
def test_what_is_no_whole_run_is_one_line(
    spoil: Callable[[Path], object],
    says: str,
    copied: Tracked,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(copied.run)
    assert main([str(copied.run), "--no-track"]) == 1
    assert says in the_line(capsys)


def test_another_number_of_files(copied: Tracked, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(write(copied.folder / "more.jsonl", records()))
    assert main([str(copied.run), "--data", data, str(copied.folder / "data.jsonl")]) == 1
    assert "the run read 1 data files, --data names 2" in the_line(capsys)


def test_no_gold_at_all(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = [{k: v for k, v in r.items() if k != "annotations"} for r in records()[:2]]
    report = answered(tiny_model, tmp_path, bare)
    assert main([str(report.output)]) == 1
    assert "has annotations" in the_line(capsys)


def test_a_store_without_the_run_costs_a_line(
    copied: Tracked, capsys: pytest.CaptureFixture[str]
) -> None:
    store = copied.folder / "elsewhere.db"
    assert main([str(copied.run), "--json", "--tracking-uri", f"sqlite:///{store}"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["page"] == str(copied.run / PAGE)
    assert err.count("\n") == 1
    assert "there is no database" in err
    assert not store.exists()
