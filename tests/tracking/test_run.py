"""Tests of runs with the real MLflow: what is recorded, how a run begins and ends."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nq.tracking import Limits, Run, attach, color, how_to_open, start
from tests.tracking.mlflow_stores import stored, the_warning, use

pytestmark = pytest.mark.slow  # importing MLflow takes ten seconds

# ------------------------------------------------------------------------ recorded values


def test_a_run_is_recorded(store: str, tmp_path: Path) -> None:
    with start(name="mixed+xla dev", profile="mixed+xla", tags={"device": "cpu"}) as run:
        run.params({"profile": "mixed+xla", "batch_size": 8, "threshold": None})
        run.metrics({"quality/long_f1": np.float32(0.5), "time/predict_s": 3})
        run.metrics({"loss": 2.0}, step=1)
        run.metrics({"loss": 1.0}, step=2)
    assert run.uri == "sqlite:///mlflow.db"
    recorded = stored(run)
    assert recorded.info.run_name == "mixed+xla dev"
    assert recorded.info.status == "FINISHED"
    assert recorded.data.params == {"profile": "mixed+xla", "batch_size": "8", "threshold": "None"}
    figures = {"quality/long_f1": 0.5, "time/predict_s": 3.0, "loss": 1.0}
    assert {
        k: v for k, v in recorded.data.metrics.items() if not k.startswith("system/")
    } == figures
    tags = recorded.data.tags
    assert tags["device"] == "cpu"
    assert tags["mlflow.runColor"] == color("mixed+xla")
    assert tags["version.numpy"] == np.__version__
    assert {"host", "version.python", "version.mlflow"} <= set(tags)


def test_all_files_are_beside_the_database(store: str, tmp_path: Path) -> None:
    with start() as run:
        use(run, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"answers.json", "mlflow.db", "mlruns"}
    folder = tmp_path / "mlruns" / "nq" / str(run.run_id) / "artifacts" / "predictions"
    assert (folder / "answers.json").read_text() == "{}"


def test_the_environment_names_store_and_experiment(store: str, tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").rename(tmp_path / "other.db")
    os.environ["MLFLOW_TRACKING_URI"] = "sqlite:///other.db"
    os.environ["MLFLOW_EXPERIMENT_NAME"] = "a study/of mine"
    with start(system_metrics=False) as first, start(system_metrics=False) as second:
        second.artifacts([__file__])
    assert first.uri == "sqlite:///other.db"
    assert stored(first).info.experiment_id == stored(second).info.experiment_id
    assert not (tmp_path / "mlflow.db").exists()
    assert stored(second).info.artifact_uri.endswith(f"a study_of mine/{second.run_id}/artifacts")


def test_artifacts_can_be_downloaded(store: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    shards = tmp_path / "shards"
    (shards / "deep").mkdir(parents=True)
    (shards / "deep" / "0.bin").write_bytes(b"\0\1")
    (tmp_path / "predictions.json").write_text("[]")
    with start(store) as run:
        run.artifacts([tmp_path / "predictions.json", str(shards)], folder="out")
        run.artifacts([tmp_path / "predictions.json"])
    copies = Path(MlflowClient(store).download_artifacts(run.run_id, "", str(tmp_path)))
    assert (copies / "predictions.json").read_text() == "[]"
    assert (copies / "out" / "predictions.json").read_text() == "[]"
    assert (copies / "out" / "deep" / "0.bin").read_bytes() == b"\0\1"


def test_files_are_attached_to_a_run_that_has_ended(store: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    with start(store, system_metrics=False) as run:
        pass
    ended = stored(run).info.end_time
    (tmp_path / "page.html").write_text("<p/>")
    line = attach([tmp_path / "page.html"], str(run.run_id), store)
    assert line == run.how_to_open()
    assert [f.path for f in MlflowClient(store).list_artifacts(run.run_id)] == ["page.html"]
    assert (stored(run).info.status, stored(run).info.end_time) == ("FINISHED", ended)


@pytest.mark.parametrize(
    ("uri", "reason"), [(None, "not found"), ("sqlite:///other.db", "there is no database")]
)
def test_attaching_to_a_missing_run_warns(
    uri: str | None, reason: str, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert attach([__file__], "0" * 32, uri) is None
    assert reason in the_warning(caplog)
    assert not Path("other.db").exists()


def test_dataset_is_recorded_without_reading_it(store: str, tmp_path: Path) -> None:
    import mlflow.data

    with start(store) as run:
        run.dataset("dev", "not/there-*.jsonl.gz", "5" * 64)
        run.dataset("gold", "gs://bucket/dev.jsonl", "12", context="scoring")
    dev, gold = sorted(stored(run).inputs.dataset_inputs, key=lambda i: str(i.dataset.name))
    assert (dev.dataset.name, dev.dataset.digest) == ("dev", "5" * 12)
    assert json.loads(dev.dataset.profile) == {"digest": "5" * 64}
    assert mlflow.data.get_source(dev).uri == str(tmp_path / "not/there-*.jsonl.gz")
    assert dev.tags[0].value == "evaluation"
    assert mlflow.data.get_source(gold).uri == "gs://bucket/dev.jsonl"


def test_values_that_are_not_finite_numbers_are_left_out(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "nq.tracking")
    others: dict[str, Any] = {
        "a": None,
        "b": math.nan,
        "c": math.inf,
        "d": "fast",
        "e": [1],
        "f": {},
    }
    with start(store, system_metrics=False) as run:
        run.metrics(others | {"yes": True, "long-recall-at-precision>=0.5": 0.25})
    assert stored(run).data.metrics == {"yes": 1.0, "long-recall-at-precision-ge-0.5": 0.25}
    assert "6 metrics have no value" in caplog.text


def test_long_texts_are_truncated_and_many_values_are_recorded(store: str) -> None:
    with start(store, system_metrics=False) as run:
        run.params({f"p{i}": i for i in range(250)} | {"long": "x" * 7000})
        run.tags({f"t{i}": i for i in range(250)} | {"long": "x" * 9000, "a>=b@c": 1})
        run.metrics({f"m{i}": i for i in range(1200)})
    data = stored(run).data
    assert (len(data.params), len(data.metrics)) == (251, 1200)
    assert data.params["long"] == "x" * 6000
    assert data.tags["long"] == "x" * 8000
    assert (data.tags["t249"], data.tags["a-ge-b-at-c"]) == ("249", "1")


def test_a_curve_keeps_its_steps(store: str) -> None:
    with start(store, system_metrics=False) as run:
        run.curve("train/loss", [0.5, math.nan, 0.25], 3)
        run.curve("train/loss", [1.0, 0.75])
    from mlflow import MlflowClient

    history = MlflowClient(store).get_metric_history(run.run_id, "train/loss")
    steps = sorted((point.step, point.value) for point in history)
    assert steps == [(1, 1.0), (2, 0.75), (3, 0.5), (5, 0.25)]


def test_system_metrics_are_recorded(store: str) -> None:
    os.environ["MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL"] = "0.1"
    with start(store) as run:
        assert run.run_id is not None
        time.sleep(0.5)
        run.metrics({"quality/long_f1": 0.5})
        begin = time.monotonic()
    assert time.monotonic() - begin < 1.5
    metrics = stored(run).data.metrics
    assert metrics["quality/long_f1"] == 0.5
    assert "system/cpu_utilization_percentage" in metrics


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_system_metrics_can_be_turned_off(store: str, enabled: str) -> None:
    os.environ["MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING"] = enabled
    with start(store) as run:
        assert run.run_id is not None
        threads = {thread.name for thread in threading.enumerate()}
        assert ("SystemMetricsMonitor" in threads) == (enabled == "true")


def test_mlflow_settings_of_the_process_are_kept(store: str, tmp_path: Path) -> None:
    import mlflow

    uri = mlflow.get_tracking_uri()
    with start(store) as run:
        use(run, tmp_path)
        assert mlflow.active_run() is None
        assert mlflow.get_tracking_uri() == uri
    assert "MLFLOW_TRACKING_URI" not in os.environ


# ------------------------------------------------------------------------ beginning and end


def test_run_is_opened_in_the_background(store: str, tmp_path: Path) -> None:
    """The test would deadlock if it had to wait, since it holds the lock of the database."""
    with contextlib.closing(
        sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)
    ) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with start(store) as run:
            run.open()
            connection.execute("ROLLBACK")
            assert run.run_id is not None


@pytest.mark.parametrize("explicit", [True, False])
def test_run_is_opened_only_when_it_is_needed(store: str, explicit: bool) -> None:
    with start(store, system_metrics=False) as run:
        assert not any(thread.name == "nq-tracking" for thread in threading.enumerate())
        if explicit:
            run.open()
            run.open()
        run.metrics({"a": 1.0})
    assert stored(run).data.metrics == {"a": 1.0}


def test_run_without_values_is_recorded(store: str) -> None:
    with start(store, system_metrics=False) as run:
        pass
    assert stored(run).info.status == "FINISHED"


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (ValueError("no such model\nat all"), "FAILED", "ValueError: no such model\nat all"),
        (KeyError(), "FAILED", "KeyError"),
        (KeyboardInterrupt(), "KILLED", None),
        (SystemExit(), "FINISHED", None),
        (SystemExit(0), "FINISHED", None),
        (SystemExit(1), "FAILED", "SystemExit: 1"),
        (SystemExit(130), "KILLED", None),
        (SystemExit(143), "KILLED", None),
    ],
)
def test_exception_ends_the_run_and_is_not_suppressed(
    store: str, error: BaseException, status: str, reason: str | None
) -> None:
    def fail(run: Run) -> None:
        run.open()
        raise error

    with pytest.raises(type(error)) as raised, start(store, system_metrics=False) as run:
        fail(run)
    assert raised.value is error
    assert stored(run).info.status == status
    assert stored(run).data.tags.get("error") == reason


def test_run_can_fail_without_an_exception(store: str) -> None:
    with start(store, system_metrics=False) as run:
        run.failed("3 bad records")
    assert stored(run).info.status == "FAILED"
    assert stored(run).data.tags["error"] == "3 bad records"


def test_an_interruption_opens_nothing(store: str, tmp_path: Path) -> None:
    """Otherwise Ctrl-C would begin with the import of MLflow, which takes seconds."""
    before = Path("mlflow.db").read_bytes()
    with pytest.raises(KeyboardInterrupt), start(store, unfinished=tmp_path / "run") as run:
        raise KeyboardInterrupt
    assert (run.run_id, run.how_to_open()) == (None, None)
    assert Path("mlflow.db").read_bytes() == before
    assert not (tmp_path / "run").exists()


def test_an_interruption_does_not_wait_for_a_run_that_does_not_open(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(sqlite3.connect("mlflow.db", isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        limits = Limits(call_s=600.0, killed_s=0.2)
        with pytest.raises(KeyboardInterrupt), start(store, limits=limits) as run:
            run.open()
            raise KeyboardInterrupt
        assert connection.in_transaction  # the thread that opens the run waits for this lock
    for thread in threading.enumerate():
        if thread.name == "nq-tracking":
            thread.join()
    assert run.run_id is None
    assert statuses(store) == ["FINISHED"] * 2  # those that were there
    assert not caplog.records


def test_interrupted_run_is_continued(store: str, tmp_path: Path) -> None:
    file = tmp_path / "training" / "run"
    with pytest.raises(ValueError, match="out of"), start(store, unfinished=file) as first:
        first.curve("loss", [3.0, 2.0])
        raise ValueError("out of memory")
    assert stored(first).info.status == "FAILED"
    with start(store, unfinished=file) as second:
        assert second.last_step("loss") == 2
        assert second.last_step("none") == 0
        assert stored(second).info.status == "RUNNING"
    assert second.run_id == first.run_id
    assert stored(second).info.status == "FINISHED"
    assert "error" not in stored(second).data.tags
    assert not file.exists()


def test_a_run_that_an_earlier_version_left_is_continued(store: str, tmp_path: Path) -> None:
    with start(store, system_metrics=False) as first:
        run_id = first.run_id
    (tmp_path / "run").write_text(f"{run_id}\n")
    with start(store, unfinished=tmp_path / "run", system_metrics=False) as second:
        assert second.run_id == run_id


KILLED = """
import os, signal, sys
from pathlib import Path
from nq import tracking
with tracking.start(sys.argv[1], system_metrics=False) as run:
    run.open(Path(sys.argv[2]))
    run.metrics({"a": 1})
    os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_a_run(store: str, file: Path) -> None:
    command = [sys.executable, "-c", KILLED, store, str(file)]
    root = Path(__file__).parents[2]
    killed = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()


def statuses(store: str) -> list[str]:
    with contextlib.closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as connection:
        return [
            status for (status,) in connection.execute("SELECT status FROM runs ORDER BY rowid")
        ]


@pytest.mark.slow
def test_a_run_whose_process_was_killed_is_continued_or_ends(store: str, tmp_path: Path) -> None:
    before = statuses(store)
    for name in ("one", "two"):
        kill_a_run(store, tmp_path / name)
    # the second process has ended the run of the first
    assert statuses(store) == [*before, "KILLED", "RUNNING"]
    with start(store, unfinished=tmp_path / "one", system_metrics=False) as alive:
        assert alive.run_id
        assert statuses(store) == [*before, "RUNNING", "KILLED"]
        with start(store, system_metrics=False) as another:
            assert another.run_id != alive.run_id
        assert statuses(store) == [*before, "RUNNING", "KILLED", "FINISHED"]
    assert statuses(store) == [*before, "FINISHED", "KILLED", "FINISHED"]
    assert stored(alive).data.metrics == {"a": 1.0}
    assert [path.name for path in tmp_path.glob("one")] == []


def test_runs_of_other_machines_are_left_alone(store: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(store)
    experiment = client.create_experiment("nq")
    tags: tuple[dict[str, str], ...] = ({"process": "another-host boot pid:[1] 1 1"}, {})
    others = [client.create_run(experiment, tags=some).info.run_id for some in tags]
    with start(store, system_metrics=False):
        pass
    assert [client.get_run(run_id).info.status for run_id in others] == ["RUNNING"] * 2


@pytest.mark.parametrize("content", ["deleted", "elsewhere", "nonsense"])
def test_new_run_is_created_if_the_unfinished_one_is_missing(
    content: str, store: str, tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    file = tmp_path / "run"
    experiment = "another" if content == "elsewhere" else None
    with contextlib.suppress(KeyboardInterrupt), start(store, experiment, unfinished=file) as first:
        assert first.run_id
        raise KeyboardInterrupt
    if content == "deleted":
        MlflowClient(store).delete_run(first.run_id)
    if content == "nonsense":
        file.write_text("../\0")
    with start(store, unfinished=file) as second:
        assert second.run_id != first.run_id
        assert stored(second).data.tags["continuation"] == file.read_text().strip()
    assert stored(first).info.status == "KILLED"
    assert stored(second).info.status == "FINISHED"


# ------------------------------------------------------------------------ links


def test_passwords_are_not_shown() -> None:
    link = how_to_open("https://me:secret@host/mlflow/", "3", "ab")
    assert link == "https://***@host/mlflow/#/experiments/3/runs/ab?workflowType=machine_learning"


def test_command_that_shows_a_run(store: str) -> None:
    with start(system_metrics=False) as run:
        pass
    line = run.how_to_open()
    assert line is not None
    assert line.startswith("mlflow ui --backend-store-uri sqlite:///mlflow.db (then open http")
    assert f"/#/experiments/{stored(run).info.experiment_id}/runs/{run.run_id}?" in line
