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
import pytest
from mlflow import MlflowClient

from nq.bundle import bundled_sample
from nq.commands.main import console
from nq.model.folder import load_settings
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.tracking import absolute
from nq.training.fit import FINAL_STEPS
from tests import tiny_models
from tests.preprocess.synthetic_examples import write_rows
from tests.training.test_teacher import ROWS
from tests.training.test_teacher import save as save_teacher

ROOT = Path(__file__).parents[2]
SIZES = ["--max-seq-length", "32", "--max-query-length", "8", "--doc-stride", "16"]


@pytest.mark.slow
def test_train_tune_answer(
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    data = ["--data", str(bundled_sample()), "--json"]
    recipe = ["--epochs", "10", "--batch-size", "8", "--save-every", "5"]
    recipe += ["--learning-rate", "1e-2", "--dropout", "0"]
    start = ["--init", str(tiny_model), "--output", "trained", "--limit", "20", "--compact"]
    start += ["--tracking-uri", "sqlite:///runs.db"]
    assert console(["train", *data, *SIZES, *recipe, *start]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert (trained["examples"], trained["dead_letters"]) == (20, 0)
    losses = curve("sqlite:///runs.db")
    assert list(losses) == list(range(1, trained["steps"] + 1))
    values = list(losses.values())
    assert trained["loss"] == pytest.approx(sum(values[-FINAL_STEPS:]) / len(values[-FINAL_STEPS:]))
    assert sum(values[-10:]) < 0.8 * sum(values[:10])
    assert load_settings("trained").windows.max_seq_length == 32
    assert console(["tune", *data, "--model", "trained"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    decision = load_settings("trained").decision
    assert decision.long_threshold == tuned["long_threshold"]
    assert decision.short_threshold == tuned["short_threshold"]
    assert console(["answer", *data, "--model", "trained", "--no-track"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 40


def curve(store: str, status: str = "FINISHED", name: str = "loss") -> dict[int, float]:
    """Returns a loss of each step, in order, of the only run with that status in the store."""
    (run,) = (run for run in runs(store) if run.info.status == status)
    key = name if "/" in name else f"train/{name}"
    points = MlflowClient(absolute(store)).get_metric_history(run.info.run_id, key)
    assert len({point.step for point in points}) == len(points)
    return {point.step: point.value for point in sorted(points, key=lambda point: point.step)}


def runs(store: str) -> list[mlflow.entities.Run]:
    client = MlflowClient(absolute(store))
    experiment = client.get_experiment_by_name("nq")
    return list(client.search_runs([experiment.experiment_id]))


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    """A tiny teacher with the vocabulary of MPNet."""
    vocab = write_rows(tmp_path / "vocab.txt", ROWS)
    shape = dataclasses.replace(tiny_models.SHAPE, vocab_size=len(ROWS), max_position_embeddings=40)
    return save_teacher(tmp_path / "teacher", shape, load_tokenizer(vocab))


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
def test_a_student_is_killed_and_resumed_in_its_run(
    tiny_model: Path,
    teacher: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The teacher's pass and the training are killed; every second page has no annotations."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    records = [json.loads(line) for line in bundled_sample().read_text("utf-8").splitlines()[:36]]
    for record in records[::2]:
        del record["annotations"]
    Path("data.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in records))
    recipe = ["--data", "data.jsonl", "--init", str(tiny_model), "--teacher", str(teacher)]
    recipe += [*SIZES, "--negatives", "1", "--batch-size", "16", "--epochs", "0.55"]
    recipe += ["--save-every", "30", "--teacher-profile", "baseline", "--teacher-weight", "0.7"]
    recipe += ["--temperature", "3", "--json"]
    whole_run = ["--output", "whole", "--tracking-uri", "sqlite:///w.db"]
    with caplog.at_level(logging.INFO):
        assert console(["train", *recipe, *whole_run]) == 0
    unlabelled = re.search(r"(\d+) windows have no label: the teacher alone", caplog.text)
    assert unlabelled and int(unlabelled[1]) > 100
    whole = json.loads(capsys.readouterr().out)

    command = [sys.executable, "-m", "nq", "train", *recipe, "--output", "out"]
    killed_at(command, tmp_path, b"nq: teacher: 512 of ")
    parts = sorted(Path("out/training/teacher").glob("part-*"))
    assert parts
    before = {path: path.stat().st_mtime_ns for path in parts}
    lines = killed_at(command, tmp_path, b"nq: step 50 ")
    assert not any(line.startswith(b"nq: teacher: 512 of ") for line in lines)
    assert any(line.startswith(b"nq: teacher: 1024 of ") for line in lines)
    assert before == {path: path.stat().st_mtime_ns for path in parts}
    assert b"hard_loss" in lines[-1] and b"soft_loss" in lines[-1]
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert [run.info.status for run in runs(store)] == ["RUNNING"]
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert console(["train", *recipe, "--output", "out"]) == 0
    assert "nq: teacher" not in caplog.text

    resumed = json.loads(capsys.readouterr().out)
    times = {"output": "out", "train_s": resumed["train_s"]}
    assert resumed == whole | times and resumed["steps"] > 60
    weights = [Path(name, "model.safetensors").read_bytes() for name in ("whole", "out")]
    assert weights[0] == weights[1]
    (run,) = runs(store)
    assert run.info.status == "FINISHED"
    expected = {"teacher": "teacher", "teacher_weight": "0.7", "temperature": "3.0"}
    expected["teacher_profile"] = "baseline"
    assert expected.items() <= run.data.params.items()
    curves = [curve(store, name=name) for name in ("loss", "hard_loss", "soft_loss")]
    for loss, hard, soft in zip(*(list(values.values()) for values in curves), strict=True):
        assert loss == pytest.approx(0.3 * hard + 0.7 * soft, rel=1e-5)
    assert list(curves[0]) == list(range(1, resumed["steps"] + 1))
    assert "- teacher: teacher" in Path("out", "README.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--teacher-weight", "0.5"], 2, "--teacher-weight needs --teacher"),
        (["--teacher-profile", "mixed"], 2, "--teacher-profile needs --teacher"),
        (["--teacher", "t", "--temperature", "0"], 2, "temperature must be in [0.1, 100], got 0.0"),
        (["--teacher", "t", "--teacher-profile", "fast"], 2, "unknown optimization 'fast'"),
        (["--teacher", "missing"], 1, "no model 'missing': expected a folder, or the name of"),
        (["--teacher", "cut"], 1, "cut/model.safetensors"),
        (["--teacher", "out"], 1, "the input out is the output folder: give another output folder"),
    ],
)
def test_a_teacher_that_cannot_teach_is_one_line(
    arguments: list[str],
    code: int,
    message: str,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.jsonl").write_bytes(bundled_sample().read_bytes())
    Path("out").mkdir()
    shutil.copytree(tiny_model, "cut")
    Path("cut", "model.safetensors").write_bytes(
        (tiny_model / "model.safetensors").read_bytes()[:99]
    )
    folders = ["--data", "data.jsonl", "--init", str(tiny_model), "--output", "out"]
    assert console(["train", *folders, *SIZES, *arguments]) == code
    lines = capsys.readouterr().err.splitlines()
    assert message in lines[-1]
    assert code == 2 or len(lines) == 1
    assert not list(Path("out").iterdir())


@pytest.mark.slow
def test_the_best_weights_on_held_out_questions_are_kept(
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A training is killed behind an evaluation; resumed, it ends as the undisturbed one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    records = bundled_sample().read_text("utf-8").splitlines(keepends=True)
    Path("data.jsonl").write_text("".join(records[:20]), "utf-8")
    Path("dev.jsonl").write_text("".join(records[20:]) + "not a record\n", "utf-8")
    recipe = ["--data", "data.jsonl", "--init", str(tiny_model), *SIZES, "--dev", "dev.jsonl"]
    recipe += ["--evaluate-every", "20", "--batch-size", "8", "--epochs", "20", "--json"]
    recipe += ["--save-every", "15", "--learning-rate", "5e-3", "--dropout", "0"]
    assert console(["train", *recipe, "--output", "whole", "--tracking-uri", "sqlite:///w.db"]) == 0
    out, err = capsys.readouterr()
    assert err.count("bad records of the held-out files, which are skipped: 1") == 1
    whole = json.loads(out)
    figures = curve("sqlite:///w.db", name="dev/micro_f1")
    steps = whole["steps"]
    assert list(figures) == sorted({*range(20, steps + 1, 20), steps})
    best = whole["best"]
    assert best["micro_f1"] == pytest.approx(max(figures.values()))
    assert best["step"] == min(s for s, f1 in figures.items() if f1 == max(figures.values()))
    run = ["--data", "dev.jsonl", "--model", "whole", "--profile", "grappler", "--no-track"]
    assert console(["answer", *run, "--json"]) == 0
    answered = json.loads(capsys.readouterr().out)["metrics"]
    assert answered["micro_f1_best"] == pytest.approx(best["micro_f1"])

    command = [sys.executable, "-m", "nq", "train", *recipe, "--output", "out"]
    killed_at(command, tmp_path, b"nq: step 40, held-out ")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert json.loads(done.stdout)["best"] == best
    assert list(curve(f"sqlite:///{tmp_path}/mlflow.db", name="dev/long_f1")) == list(figures)
    name = "model.safetensors"
    assert Path("out", name).read_bytes() == Path("whole", name).read_bytes()
