"""``nq train``, and ``nq tune`` and ``nq answer`` with the trained model."""

import dataclasses
import json
import logging
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import mlflow.entities
import numpy as np
import pytest

from nq import cleaning
from nq.bundle import bundled_sample
from nq.config import WindowConfig
from nq.errors import Error
from nq.memo import Memo
from nq.mlflow_store import connect
from nq.model import joint
from nq.model.folder import ModelFolder
from nq.storage import hold
from nq.tracking import RESUMES
from nq.training.job import FINAL_STEPS, STATE, TRAINING, TrainingJob
from nq.training.train import opened, train
from tests.conftest import Commands
from tests.support import tiny_models
from tests.support.folders import tree
from tests.support.nq_records import write_lines

ROOT = Path(__file__).parents[2]
SIZES = ["--max-seq-length", "32", "--max-query-length", "8", "--doc-stride", "16"]


def curve(run: mlflow.entities.Run, key: str) -> dict[int, float]:
    """Returns a figure of each step of a run, in order."""
    points = connect("sqlite:///mlflow.db").get_metric_history(run.info.run_id, key)
    assert len({point.step for point in points}) == len(points)
    return {point.step: point.value for point in sorted(points, key=lambda point: point.step)}


def runs(experiment: str) -> list[mlflow.entities.Run]:
    """Returns the runs of an experiment, the latest first."""
    client = connect("sqlite:///mlflow.db")
    found = client.get_experiment_by_name(experiment)
    return [*client.search_runs([found.experiment_id], order_by=["start_time DESC"])]


@pytest.fixture
def teacher(tiny_model: Path, tmp_path: Path) -> Path:
    """A tiny teacher with a layer more than its student."""
    shape = dataclasses.replace(tiny_models.SHAPE, num_hidden_layers=3)
    vocabulary, model = tiny_model / "vocab.txt", joint.build(shape, seed=3)
    return tiny_models.save(tmp_path / "teacher", model, shape, vocabulary, max_seq_length=24)


def killed_at(command: list[str], folder: Path, line: bytes) -> list[bytes]:
    """Kills a command as soon as it logs a line that begins so; returns the lines until then."""
    lines = []
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        for logged in process.stderr:
            lines.append(logged)
            if logged.startswith(line):
                break
        process.kill()
    assert process.returncode == -signal.SIGKILL, b"".join(lines)
    return lines


@pytest.mark.slow
def test_a_student_is_killed_and_resumed(
    tiny_model: Path,
    teacher: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    commands: Commands,
) -> None:
    """Killed behind an evaluation and resumed, a training of a student is as undisturbed.

    It ends with the weights and figures of an undisturbed one, which are those
    of the best step. Every second page has no annotations.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    records = bundled_sample().read_text("utf-8").splitlines(keepends=True)
    Path("dev.jsonl").write_text("".join(records[20:]) + "not a record\n", "utf-8")
    for i in range(0, len(records), 2):
        record = json.loads(records[i])
        del record["annotations"]
        records[i] = f"{json.dumps(record)}\n"
    Path("data.jsonl").write_text("".join(records), "utf-8")
    recipe = ["--data", "data.jsonl", "--limit", "36", "--init", str(tiny_model), *SIZES]
    recipe += ["--negatives", "1", "--batch-size", "16", "--epochs", "0.55", "--save-every", "30"]
    recipe += ["--learning-rate", "5e-3", "--dev", "dev.jsonl", "--evaluate-every", "20"]
    recipe += ["--teacher", str(teacher), "--teacher-profile", "baseline"]
    recipe += ["--teacher-weight", "0.7", "--temperature", "3"]
    with caplog.at_level(logging.INFO):
        whole = commands.json("train", *recipe, "--output", "whole", "--experiment", "whole")
    unlabelled = re.search(r"(\d+) windows have no label: the teacher alone", caplog.text)
    assert unlabelled and int(unlabelled[1]) > 100
    assert caplog.text.count("held-out files") == 1
    assert (whole["examples"], whole["dead_letters"]) == (36, 0)
    steps, best = whole["steps"], whole["best"]
    (undisturbed,) = runs("whole")
    losses = list(curve(undisturbed, "train/loss").values())
    assert whole["loss"] == pytest.approx(np.mean(losses[-FINAL_STEPS:]))
    assert sum(losses[-10:]) < sum(losses[:10])
    figures = curve(undisturbed, "dev/micro_f1")
    assert list(figures) == sorted({*range(20, steps + 1, 20), steps})
    assert best["micro_f1"] == pytest.approx(max(figures.values()))
    assert best["step"] == min(s for s, f1 in figures.items() if f1 == max(figures.values()))

    command = [sys.executable, "-m", "nq", "train", *recipe, "--output", "out"]
    lines = killed_at(command, tmp_path, b"nq: step 60, held-out ")
    assert any(b"hard_loss" in line and b"soft_loss" in line for line in lines)
    assert runs("nq")[0].info.status == "RUNNING"
    parts = sorted(Path("out/unfinished/teacher").glob("part-*"))
    before = [path.stat().st_mtime_ns for path in parts]
    resumed = commands.json("train", *recipe, "--output", "out")
    assert before == [path.stat().st_mtime_ns for path in parts]

    times = {"output": "out", "train_s": resumed["train_s"]}
    assert resumed == whole | times and steps > 60
    weights = [Path(name, "model.safetensors").read_bytes() for name in ("whole", "out")]
    assert weights[0] == weights[1]
    items = cleaning.clean([Path("out")], dry_run=True)
    assert {item.what for item in items} == {"state of a finished training", "prepared windows"}
    run, killed = runs("nq")
    assert (run.info.status, killed.info.status) == ("FINISHED", "KILLED")
    assert run.data.tags[RESUMES] == killed.info.run_id
    expected = {"teacher": "teacher", "teacher_weight": "0.7", "temperature": "3.0"}
    expected["teacher_profile"] = "baseline"
    assert expected.items() <= run.data.params.items()
    curves = [curve(run, f"train/{name}") for name in ("loss", "hard_loss", "soft_loss")]
    for loss, hard, soft in zip(*(list(values.values()) for values in curves), strict=True):
        assert loss == pytest.approx(0.3 * hard + 0.7 * soft, rel=1e-5)
    assert list(curves[0]) == list(range(1, steps + 1))
    assert list(curve(run, "dev/long_f1")) == list(figures)
    assert "- teacher: teacher" in Path("out", "README.md").read_text()

    dev = ["--data", "dev.jsonl", "--model", "out", "--profile", "grappler"]
    answered = commands.json("answer", *dev, "--no-track")["metrics"]
    assert answered["micro_f1_best"] == pytest.approx(best["micro_f1"])
    tuned = commands.json("tune", *dev)
    settings = ModelFolder(Path("out")).settings
    assert settings.windows.max_seq_length == 32
    assert settings.decision.long_threshold == tuned["long_threshold"]
    assert settings.decision.short_threshold == tuned["short_threshold"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--teacher-weight", "0.5"], 2, "--teacher-weight"),
        (["--teacher", "t", "--temperature", "0"], 2, "[0.1, 100]"),
        (["--teacher", "cut"], 1, "cut/model.safetensors"),
        (["--teacher", "out"], 1, "out"),
        (["--epochs", "0.001"], 1, "0.001 epochs of 56"),
        (["--data", "unanswerable.jsonl"], 1, "--negatives above 0.02"),
    ],
)
def test_a_training_that_cannot_begin_is_one_line_and_leaves_nothing(
    arguments: list[str],
    code: int,
    message: str,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commands: Commands,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.jsonl").write_bytes(bundled_sample().read_bytes())
    record = {"question": "when", "context": "It was lit in 1874.", "answers": []}
    Path("unanswerable.jsonl").write_text(json.dumps(record))
    Path("out").mkdir()
    shutil.copytree(tiny_model, "cut")
    Path("cut", "model.safetensors").write_bytes(
        (tiny_model / "model.safetensors").read_bytes()[:99]
    )
    folders = ["--data", "data.jsonl", "--init", tiny_model, "--output", "out"]
    commands.out("train", *folders, *SIZES, *arguments, code=code)
    lines = commands.err.splitlines()
    assert message in lines[-1]
    assert code == 2 or len([line for line in lines if "error" in line]) == 1
    assert not list(Path("out").iterdir())


@pytest.mark.parametrize("is_finished", [False, True])
def test_the_training_of_other_options_is_refused_and_not_touched(
    is_finished: bool, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    out, small = tmp_path / "out", WindowConfig(32, 16, 8)
    job = TrainingJob.of([bundled_sample()], init=tiny_model, output=out, windows=small)
    with opened(job) as training:
        Memo.open(out / STATE, training.description)
    if is_finished:
        shutil.copytree(tiny_model, out, dirs_exist_ok=True)
    before, changed = tree(out), out.stat().st_mtime_ns
    folders = ["--data", bundled_sample(), "--init", tiny_model, "--output", out]
    for options in (["--epochs", "9"], ["--limit", "30"], ["--store", "int8"]):
        assert str(out) in commands.error("train", *folders, *SIZES, *options)
        assert (tree(out), out.stat().st_mtime_ns) == (before, changed)
    with hold(out, TRAINING), pytest.raises(Error, match=str(out)):
        train(job)


def test_records_without_gold_are_counted(
    tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    question = {"question": "when was it lit", "context": "it was lit in 1874"}
    several = [{**question, "answer": year} for year in ("1986", "1874", "1874", "1874")]
    data, model = write_lines(tmp_path / "data.jsonl", several), tmp_path / "model"
    paths = ["--data", data, "--init", tiny_model, "--output", model]
    more = ["--batch-size", 1, "--epochs", 1, "--negatives", 0, "--no-track"]
    printed = commands.out("train", *paths, *SIZES, *more)
    assert printed.startswith("trained 3 steps of 1 of 3 windows")
    assert "1 question gave no window: no gold in the page, or negatives not drawn\n" in printed
