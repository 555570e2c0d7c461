"""The command on real runs of a tiny model, with a real tracking store, and on damaged runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nq
from experiments.errors.__main__ import PAGE, main
from nq.config import DecisionConfig, RankingWeights
from nq.runs.score_store import KEYS
from nq.tracking.store import import_mlflow

ROOT = Path(__file__).parents[2]
EXAMPLES = 8


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


def sample_records() -> list[dict[str, Any]]:
    """Returns the first records of the sample, each with a source."""
    lines = nq.bundled_sample().read_text(encoding="utf-8").splitlines()[:EXAMPLES]
    return [json.loads(line) | {"source": f"set {i % 2}"} for i, line in enumerate(lines)]


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def answer(model: Path, folder: Path, records: list[dict[str, Any]], **job: Any) -> nq.Result:
    """Answers every question, so that there are errors."""
    data = write(folder / "data.jsonl", records)
    decision = DecisionConfig(long_threshold=-1e9, short_threshold=-1e9)
    return nq.run(nq.Job([data], model, decision=decision, output=folder / "run", **job))


@pytest.fixture(scope="module")
def finished(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a model, and a finished run with scores."""
    folder = tmp_path_factory.mktemp("finished")
    model = shutil.copytree(tiny_model, folder / "model")
    answer(model, folder, sample_records(), keep_scores=True)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the run to be damaged; its job still names the files of the original."""
    return shutil.copytree(finished, tmp_path / "copy") / "run"


def json_report(run: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """Returns the JSON report of the command, without the path of its page."""
    assert main([str(run), "--no-track", "--json", *options]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    del report["page"]
    return report


@pytest.mark.slow
def test_the_page_becomes_an_artifact_of_the_mlflow_run(tiny_model: Path, tmp_path: Path) -> None:
    write(tmp_path / "data.jsonl", sample_records())
    process = command(
        *("nq.answer", "--data", "data.jsonl", "--model", tiny_model, "--output", "run"),
        *("--keep-scores", "--json", "--long-threshold=-1e9", "--short-threshold=-1e9"),
        folder=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    process = command("experiments.errors", "run", "--json", folder=tmp_path)
    assert (process.returncode, process.stderr) == (0, "")
    report = json.loads(process.stdout)
    assert report["run_id"] == result["run_id"]
    assert report["examples"] == EXAMPLES
    for kind in ("long", "short"):
        for name in ("precision", "recall", "f1"):
            expected = result["metrics"][f"{kind}-answer-{name}"]
            assert (report[kind][name] or 0) == pytest.approx(expected)
        assert list(report[kind]["bounds"]) == ["contexts", "windows", "positions"]
    sources = report["splits"]["source"]
    assert {split["long"]["right"] is not None for split in sources.values()} == {True}
    assert list(sources) == ["set 0", "set 1"]
    assert (tmp_path / "run" / PAGE).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")

    import_mlflow()
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    names = {artifact.path for artifact in client.list_artifacts(report["run_id"])}
    assert {PAGE, "job.json", "predictions.json"} <= names
    assert client.get_run(report["run_id"]).info.status == "FINISHED"


def test_tables_on_stdout(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run), "--no-track", "--show", "1"]) == 0
    out = capsys.readouterr().out
    for title in ("answers", "positions", "gold block", "question", "source", "incorrect long"):
        assert f"\n{title}" in out, title
    assert f"written to {run / PAGE}" in out
    assert "see the run" not in out


def test_without_scores_the_other_stages_are_shown(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(run / "scores")
    assert main([str(run), "--no-track"]) == 0
    out = capsys.readouterr().out
    assert "--keep-scores" in out
    assert "\npositions" not in out
    assert "\nwindows" in out


def edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads(path.read_text(encoding="utf-8"))
    edit(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def save_as_an_earlier_version(run: Path) -> None:
    """Changes a run folder to the names that earlier versions gave to settings and files.

    The scores of the first part are in a part of rescored examples too; the first part itself
    then has no positions.
    """
    old_names = {new: old for old, new in RankingWeights.ALIASES.items()}

    def rename_settings(description: dict[str, Any]) -> None:
        job = description["job"]
        weights = job["decision"]["weights"]
        job["decision"]["weights"] = {old_names.get(k, k): v for k, v in weights.items()}
        job["profile"] = "mixed+recheck"

    edit_json(run / "job.json", rename_settings)
    edit_json(run / "metrics.json", lambda m: m.update(rechecked=m.pop("rescored")))
    parts = sorted((run / "scores").glob("*.npz"))
    shutil.copy(parts[0], run / "scores" / "again-000000000000.npz")
    with np.load(parts[0]) as arrays:
        columns = {
            name: np.full_like(x, -1) if name not in KEYS else x for name, x in arrays.items()
        }
    np.savez(parts[0], allow_pickle=False, **columns)
    for number, part in enumerate(parts):
        part.rename(part.with_name(f"windows-00000-of-00001-{number:012d}.npz"))


def test_runs_of_earlier_versions_are_read(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = json_report(run, capsys)
    save_as_an_earlier_version(run)
    report = json_report(run, capsys)
    assert report["run"].pop("profile") == "mixed+rescore"
    assert expected["run"].pop("profile") == "grappler"
    assert report == expected
    assert sum(report["long"][outcome] for outcome in ("right", "wrong", "extra")) > 0


@pytest.mark.slow
def test_moved_data_and_model_can_be_given(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = answer(tiny_model, tmp_path, sample_records()[:2]).folder
    assert not (run / "scores").exists()
    new = tmp_path / "new.jsonl"
    (tmp_path / "data.jsonl").rename(new)
    assert main([str(run)]) == 1
    assert "--data" in only_error_line(capsys)
    shutil.copytree(tiny_model, tmp_path / "model")
    assert main([str(run), "--data", str(new), "--model", str(tmp_path / "model")]) == 0
    capsys.readouterr()


def only_error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Returns the only line of the output, which is on stderr."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("nq: error: ")
    return err


def edit_job(run: Path, **values: object) -> None:
    edit_json(run / "job.json", lambda description: description["job"].update(values))


def interrupt(run: Path) -> None:
    (run / "job.json").unlink()
    (run / "scores").rename(run / "results")


def change_data(run: Path) -> None:
    edit_job(run, files=[str(write(run / "other.jsonl", sample_records()[:2]))])


def change_tokenizer(run: Path) -> None:
    model = run.parent / "model"
    with (model / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("zoo\n")
    edit_job(run, model=str(model))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "is not a folder"),
        (lambda run: (run / "job.json").unlink(), "it is not a run of nq answer"),
        (lambda run: (run / "metrics.json").unlink(), "has no metrics.json"),
        (interrupt, "again to resume"),
        (lambda run: (run / "job.json").write_text("{"), "is damaged"),
        (lambda run: (run / "job.json").write_text("[]"), "no JSON object"),
        (lambda run: (run / "job.json").write_text("{}"), "another version"),
        (lambda run: edit_job(run, windows={"hop": 1}), "another version"),
        (lambda run: edit_job(run, profile="mixed+quick"), "another version"),
        (lambda run: edit_job(run, files=["gone.jsonl"]), "with --data"),
        (lambda run: edit_job(run, model="gone"), "with --model"),
        (change_data, "is not the file that the run read"),
        (change_tokenizer, "is not the one of the run"),
        (lambda run: (run / "predictions.json").unlink(), "predictions.json"),
        (
            lambda run: edit_json(run / "predictions.json", lambda p: p["predictions"].pop()),
            "has no example",
        ),
        (lambda run: next((run / "scores").glob("*.npz")).unlink(), "not complete"),
    ],
)
def test_a_damaged_run_gives_a_one_line_error(
    damage: Callable[[Path], object],
    message: str,
    run: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage(run)
    assert main([str(run), "--no-track"]) == 1
    assert message in only_error_line(capsys)


def test_another_number_of_files(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(write(run.parent / "more.jsonl", sample_records()))
    assert main([str(run), "--data", data, str(run.parent / "data.jsonl")]) == 1
    assert "the run read 1 data files, --data names 2" in only_error_line(capsys)


@pytest.mark.slow
def test_data_without_gold(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [{k: v for k, v in r.items() if k != "annotations"} for r in sample_records()[:2]]
    run = answer(tiny_model, tmp_path, records).folder
    assert main([str(run)]) == 1
    assert "has annotations" in only_error_line(capsys)


def test_a_store_without_the_run_gives_a_warning(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = run.parent / "elsewhere.db"
    edit_json(run / "metrics.json", lambda metrics: metrics.update(run_id="0" * 32))
    assert main([str(run), "--json", "--tracking-uri", f"sqlite:///{store}"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["page"] == str(run / PAGE)
    assert err.count("\n") == 1
    assert "there is no database" in err
    assert not store.exists()
