"""The command on real runs of a tiny model, with a real tracking store, and on damaged runs."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nq
from nq import storage
from nq.config import DecisionConfig
from nq.mlflow_store import connect
from nq.runs.folder import JOB, METRICS, REPORT
from nq.runs.result import Result
from tests.conftest import Commands
from tests.support.child_processes import python
from tests.support.folders import of_earlier_version
from tests.support.nq_records import write_lines
from tests.support.terminal_output import without_progress

EXAMPLES, PROFILE = 8, "openvino"


def sample_records() -> list[dict[str, Any]]:
    """Returns the first records of the sample."""
    lines = nq.bundled_sample().read_text(encoding="utf-8").splitlines()[:EXAMPLES]
    return [json.loads(line) for line in lines]


def answer(
    model: Path, folder: Path, records: list[dict[str, Any]], threshold: float = -1e9, **job: Any
) -> Result:
    """Answers every question, so that there are errors, or none by a high threshold."""
    data = write_lines(folder / "data.jsonl", records)
    decision = DecisionConfig(long_threshold=threshold, short_threshold=threshold)
    return nq.run(
        nq.Job(
            [data], nq.Model.open(model, decision=decision), PROFILE, output=folder / "run", **job
        )
    )


@pytest.fixture(scope="module")
def finished(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a model, and a finished run with scores."""
    folder = tmp_path_factory.mktemp("finished")
    model = shutil.copytree(tiny_model, folder / "model")
    answer(model, folder, sample_records(), keep_scores=True, formats="nbest")
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the run to be damaged; its job still names the files of the original."""
    return shutil.copytree(finished, tmp_path / "copy") / "run"


def embedded(page: Path, name: str) -> Any:
    """Returns JSON of a page for its script."""
    text = page.read_text(encoding="utf-8")
    start = f'<script type="application/json" id="json-{name}">'
    return json.loads(text.split(start)[1].split("</script>")[0])


@pytest.mark.slow
def test_the_report_becomes_an_artifact_of_the_mlflow_run(tiny_model: Path, tmp_path: Path) -> None:
    write_lines(tmp_path / "data.jsonl", sample_records())
    process = python(
        *("-m", "nq.answer", "--data", "data.jsonl", "--model", tiny_model, "--output", "run"),
        *("--keep-scores", "--json", "--set=long_threshold=-1e9,short_threshold=-1e9"),
        folder=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    assert "report" not in process.stderr
    result = json.loads(process.stdout)
    logged = (tmp_path / "run" / REPORT).read_bytes()
    process = python("-m", "nq", "report", "run", "--json", folder=tmp_path)
    assert (process.returncode, without_progress(process.stderr)) == (0, "")
    assert (tmp_path / "run" / REPORT).read_bytes() == logged
    report = json.loads(process.stdout)
    analysis = report["analysis"]
    assert report["questions"] == analysis["examples"] == EXAMPLES
    for kind in ("long", "short"):
        for name in ("precision", "recall", "f1"):
            expected = result["metrics"][f"{kind}-answer-{name}"]
            assert (analysis[kind][name] or 0) == pytest.approx(expected)
        assert list(analysis[kind]["bounds"]) == ["contexts", "windows", "positions"]
    rows = embedded(tmp_path / "run" / REPORT, "rows")
    outcomes = [row["o"][1] for row in rows]
    assert outcomes.count("right") == analysis["long"]["right"]

    client = connect(f"sqlite:///{tmp_path / 'mlflow.db'}")
    names = {artifact.path for artifact in client.list_artifacts(result["run_id"])}
    assert {REPORT, "job.json", "predictions.json"} <= names
    client.download_artifacts(result["run_id"], REPORT, str(tmp_path))
    assert (tmp_path / REPORT).read_bytes() == logged


@pytest.mark.slow
def test_two_runs_are_compared(
    run: Path, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    data = run.parent / "data.jsonl"
    other = answer(tiny_model, tmp_path, sample_records(), threshold=1e9).folder
    report = commands.json("report", run, "--against", other)
    rows, details = embedded(run / REPORT, "rows"), embedded(run / REPORT, "details")
    answered = sum(entry["given"]["l"] != "" for entry in details)
    assert report["rows"][0]["changed"] == sum(row["c"] for row in rows) == answered > 0
    assert {row["b"] for row in rows} == {""}
    assert {row["bo"][0] for row in rows} == {"missed", "null"}
    assert {outcome for row in rows for outcome in row["bo"][1:]} <= {"missed", "null"}
    shown = commands.out("report", run, "--against", other)
    assert "   changed\n" in shown and shown.count(" · ") >= 2 and "pare" in shown
    page = (run / REPORT).read_text("utf-8")
    assert '<th scope="col">changed from last</th>' in page and "cached" not in page
    for path in (run / "predictions.json", other / "job.json", data):
        before = path.read_bytes()
        options = ["--data", data, "--output", path, "--against", other]
        assert str(path) in commands.error("report", run, *options)
        assert path.read_bytes() == before


@pytest.mark.slow
def test_runs_that_cannot_be_compared_are_named(
    run: Path, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    assert str(run) in commands.error("report", run, run, code=1)
    others = answer(tiny_model, tmp_path, sample_records()[6:]).folder
    for options in ([others], ["--against", others]):
        assert str(others) in commands.error("report", run, *options)
    moved = Path(shutil.copytree(run, tmp_path / "moved"))
    metrics = json.loads((moved / METRICS).read_bytes())
    (moved / METRICS).write_text(json.dumps({**metrics, "machine": "another"}))
    assert str(moved / METRICS) in commands.error("report", run, moved, code=1)  # its digest
    description = storage.read_json(moved / JOB)
    digests = {**description["files"], METRICS: storage.sha256(moved / METRICS)}
    storage.write_json(moved / JOB, {**description, "files": digests})
    result = commands.json("report", run, moved)
    assert "2 machines" in result["reason"] and result["rows"][0]["max_drift"] is None
    assert [row["max_drift"] for row in result["rows"][1:]] == [0.0]
    commands.error("report", run, moved, "--against", run, code=2)
    (run.parent / "data.jsonl").write_text("{}", encoding="utf-8")
    assert "data.jsonl" in commands.error("report", run, moved, "--data", run.parent / "data.jsonl")


@pytest.mark.slow
def test_without_a_run_it_is_about_the_last_one(
    run: Path, tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "runs" in commands.error("report")
    for name in ("b", "a", "c"):
        shutil.copytree(run, tmp_path / "runs" / name)
    os.utime(tmp_path / "runs" / "a" / "job.json", (2e9, 2e9))
    interrupt(tmp_path / "runs" / "c")
    assert commands.json("report")["page"] == "runs/a/report.html"


def edit_job(run: Path, **values: object) -> None:
    description = storage.read_json(run / "job.json")
    description["job"].update(values)
    storage.write_json(run / "job.json", description)


def interrupt(run: Path) -> None:
    (run / "job.json").unlink()
    (run / "scores").rename(run / "unfinished")


def drop_a_prediction(run: Path) -> None:
    predictions = json.loads((run / "predictions.json").read_bytes())["predictions"]
    (run / "predictions.json").write_text(json.dumps({"predictions": predictions[:-1]}))
    description = storage.read_json(run / "job.json")
    storage.write_json(run / "job.json", {**description, "files": {}})


def change_data(run: Path) -> None:
    edit_job(run, files=[str(write_lines(run / "other.jsonl", sample_records()[:2]))])


def change_tokenizer(run: Path) -> None:
    model = run.parent / "model"
    with (model / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("zoo\n")
    (first,) = storage.read_json(run / "job.json")["job"]["models"]
    edit_job(run, models=[{**first, "folder": str(model)}])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: (run / "job.json").unlink(), "job.json"),
        (interrupt, "nq answer"),
        (lambda run: of_earlier_version(run / "job.json"), "answer the questions again"),
        (lambda run: (run / "predictions.json").write_text("[]"), "predictions.json"),
        (drop_a_prediction, "no answer to"),
        (lambda run: next((run / "scores").glob("*.npz")).unlink(), "scores"),
        (lambda run: edit_job(run, files=["gone.jsonl"]), "gone.jsonl"),
        (change_data, "other.jsonl"),
        (change_tokenizer, "--model"),
        (lambda run: (run / REPORT).write_text("mine"), REPORT),
    ],
)
def test_a_damaged_run_gives_a_one_line_error(
    damage: Callable[[Path], object], message: str, run: Path, commands: Commands
) -> None:
    damage(run)
    assert message in commands.error("report", run)


def test_an_earlier_version_of_the_run_to_compare_with_is_one_line(
    finished: Path, run: Path, commands: Commands
) -> None:
    of_earlier_version(run / "job.json")
    answering = ["answer", "--data", finished / "data.jsonl", "--no-track"]
    for command in (["report", finished / "run"], answering):
        error = commands.error(*command, "--against", run)
        assert str(run / "job.json") in error and "answer the questions again" in error
