"""The commands that make a model: train, then tune, then answer with it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import mlflow.entities
import pytest
from mlflow import MlflowClient

from nq.bundle import bundled_sample
from nq.commands.main import console
from nq.commands.train import STEPS_TOLD_TOGETHER, Progress
from nq.model.checkpoint import load_settings

SIZES = ["--max-seq-length", "32", "--max-query-length", "8", "--doc-stride", "16"]


def test_train_tune_answer(
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    data = ["--data", str(bundled_sample()), "--json"]
    recipe = ["--epochs", "1", "--batch-size", "8", "--save-every", "5"]
    start = ["--init", str(tiny_model), "--output", "made", "--limit", "20", "--compact"]
    start += ["--tracking-uri", "sqlite:///runs.db"]
    assert console(["train", *data, *SIZES, *recipe, *start]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert (trained["examples"], trained["dead_letters"]) == (20, 0)
    assert trained["loss"] > 0
    assert curve("sqlite:///runs.db") == list(range(1, trained["steps"] + 1))
    assert load_settings("made").windows.max_seq_length == 32
    assert console(["tune", *data, "--model", "made"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    decision = load_settings("made").decision
    assert decision.long_threshold == tuned["long_threshold"]
    assert decision.short_threshold == tuned["short_threshold"]
    assert console(["answer", *data, "--model", "made", "--no-track"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 40


def curve(store: str) -> list[int]:
    """The steps of the loss curve of the only run in the store."""
    run = only_run(store)
    points = MlflowClient(store).get_metric_history(run.info.run_id, "train/loss")
    return sorted(point.step for point in points)


def only_run(store: str) -> mlflow.entities.Run:
    """The run of a store that has one."""
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("nq")
    (run,) = client.search_runs([experiment.experiment_id])
    return run


def test_a_killed_training_goes_on_in_its_run(tiny_model: Path, tmp_path: Path) -> None:
    arguments = ["--data", str(bundled_sample()), "--init", str(tiny_model), "--output", "made"]
    recipe = ["--epochs", "30", "--batch-size", "8", "--save-every", "30", "--limit", "20"]
    command = [sys.executable, "-m", "nq.train", *arguments, *SIZES, *recipe]
    with subprocess.Popen([*command, "--json"], cwd=tmp_path, stderr=subprocess.PIPE) as killed:
        assert killed.stderr is not None
        for line in killed.stderr:
            if line.startswith(b"step 50 "):
                break
        killed.kill()
    assert killed.returncode == -signal.SIGKILL
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert only_run(store).info.status == "RUNNING"
    done = subprocess.run([*command, "--json"], cwd=tmp_path, capture_output=True, check=True)
    steps = json.loads(done.stdout)["steps"]
    assert steps > 60
    assert only_run(store).info.status == "FINISHED"
    assert curve(store) == list(range(1, steps + 1))
    assert not list((tmp_path / "made" / "training").glob("*.mlflow_run"))


def test_other_content_under_the_same_name_is_another_run(
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    records = bundled_sample().read_text(encoding="utf-8").splitlines(keepends=True)
    arguments = ["--data", "data.jsonl", "--init", str(tiny_model), "--output", "made", "--json"]
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    recipe = ["--epochs", "20", "--batch-size", "8", "--tracking-uri", store]
    command = ["train", *arguments, *SIZES, *recipe]
    tell = Progress.__call__

    def interrupted(self: Progress, step: int, total: int, loss: float) -> None:
        tell(self, step, total, loss)
        if step == STEPS_TOLD_TOGETHER:
            raise KeyboardInterrupt

    Path("data.jsonl").write_text("".join(records[:20]), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "__call__", interrupted)
        assert console(command) == 130
    capsys.readouterr()
    Path("data.jsonl").write_text("".join(records[20:]), encoding="utf-8")
    assert console(command) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("nq")
    runs = {run.info.status: run for run in client.search_runs([experiment.experiment_id])}
    assert sorted(runs) == ["FINISHED", "KILLED"]
    points = client.get_metric_history(runs["FINISHED"].info.run_id, "train/loss")
    assert sorted(point.step for point in points) == list(range(1, steps + 1))


@pytest.mark.parametrize("negatives", ["0", "1"])  # nobody said that there is no answer
def test_nothing_to_train_on_is_one_line(
    negatives: str, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads(bundled_sample().read_text(encoding="utf-8").splitlines()[0])
    del record["annotations"]
    data = tmp_path / "without.jsonl"
    data.write_text(json.dumps(record), encoding="utf-8")
    arguments = ["--data", str(data), "--init", str(tiny_model), "--output", str(tmp_path / "made")]
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
def test_absurd_values_are_wrong_usage(
    option: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--data", "some.jsonl", "--init", "model", "--output", str(tmp_path / "made")]
    assert console(["train", *folders, option]) == 2
    assert message in capsys.readouterr().err
