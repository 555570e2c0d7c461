"""``nq train``, and ``nq tune`` and ``nq answer`` with the trained model."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import mlflow.entities
import pytest
from mlflow import MlflowClient

from nq.bundle import bundled_sample
from nq.commands.main import console
from nq.model.checkpoint import load_settings
from nq.training.train import FINAL_STEPS, REPORT_EVERY, TrainingProgress

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


def curve(store: str, status: str = "FINISHED") -> dict[int, float]:
    """Returns the loss of each step, in order, of the only run with that status in the store."""
    (run,) = (run for run in runs(store) if run.info.status == status)
    points = MlflowClient(store).get_metric_history(run.info.run_id, "train/loss")
    assert len({point.step for point in points}) == len(points)
    return {point.step: point.value for point in sorted(points, key=lambda point: point.step)}


def runs(store: str) -> list[mlflow.entities.Run]:
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("nq")
    return list(client.search_runs([experiment.experiment_id]))


@pytest.mark.slow
def test_a_killed_training_is_resumed_in_its_run(tiny_model: Path, tmp_path: Path) -> None:
    arguments = ["--data", str(bundled_sample()), "--init", str(tiny_model), "--output", "trained"]
    recipe = ["--epochs", "30", "--batch-size", "8", "--save-every", "30", "--limit", "20"]
    command = [sys.executable, "-m", "nq.train", *arguments, *SIZES, *recipe]
    with subprocess.Popen([*command, "--json"], cwd=tmp_path, stderr=subprocess.PIPE) as killed:
        assert killed.stderr is not None
        for line in killed.stderr:
            if line.startswith(b"nq: step 50 "):
                break
        killed.kill()
    assert killed.returncode == -signal.SIGKILL
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert [run.info.status for run in runs(store)] == ["RUNNING"]
    done = subprocess.run([*command, "--json"], cwd=tmp_path, capture_output=True, check=True)
    steps = json.loads(done.stdout)["steps"]
    assert steps > 60
    assert [run.info.status for run in runs(store)] == ["FINISHED"]
    assert list(curve(store)) == list(range(1, steps + 1))
    assert not list((tmp_path / "trained" / "training").glob("*.mlflow_run"))


@pytest.mark.slow
def test_other_content_under_the_same_name_is_another_run(
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    records = bundled_sample().read_text(encoding="utf-8").splitlines(keepends=True)
    arguments = ["--data", "data.jsonl", "--init", str(tiny_model), "--output", "trained", "--json"]
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    recipe = ["--epochs", "20", "--batch-size", "8", "--tracking-uri", store]
    command = ["train", *arguments, *SIZES, *recipe]
    report = TrainingProgress.__call__

    def interrupted(self: TrainingProgress, losses: Sequence[float], total: int) -> None:
        report(self, losses, total)
        if len(losses) == REPORT_EVERY:
            raise KeyboardInterrupt

    Path("data.jsonl").write_text("".join(records[:20]), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(TrainingProgress, "__call__", interrupted)
        assert console(command) == 130
    capsys.readouterr()
    Path("data.jsonl").write_text("".join(records[20:]), encoding="utf-8")
    assert console(command) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert sorted(run.info.status for run in runs(store)) == ["FINISHED", "KILLED"]
    assert list(curve(store)) == list(range(1, steps + 1))


@pytest.mark.parametrize("negatives", ["0", "1"])  # a page without annotation is no negative
def test_an_input_without_training_windows_is_one_line(
    negatives: str, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads(bundled_sample().read_text(encoding="utf-8").splitlines()[0])
    del record["annotations"]
    data = tmp_path / "without.jsonl"
    data.write_text(json.dumps(record), encoding="utf-8")
    arguments = [
        "--data",
        str(data),
        "--init",
        str(tiny_model),
        "--output",
        str(tmp_path / "trained"),
    ]
    sizes = ["--max-seq-length", "32", "--max-query-length", "8", "--negatives", negatives]
    assert console(["train", *arguments, *sizes]) == 1
    assert "annotations" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--limit=0", "--limit: must be at least 1, got 0"),
        ("--limit=-3", "--limit: must be at least 1, got -3"),
        ("--workers=-1", "--workers: must be at least 1, got -1"),
        ("--epochs=inf", "epochs must be above 0 and finite, got inf"),
        ("--learning-rate=inf", "learning_rate must be above 0 and finite, got inf"),
        ("--dropout=1", "dropout must be in [0, 1), got 1.0"),
    ],
)
def test_values_out_of_range_are_usage_errors(
    option: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--data", "some.jsonl", "--init", "model", "--output", str(tmp_path / "trained")]
    assert console(["train", *folders, option]) == 2
    assert message in capsys.readouterr().err
