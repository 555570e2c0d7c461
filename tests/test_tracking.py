"""Tracking with the real MLflow: a database, a server, and all that can be wrong with them."""

import contextlib
import json
import logging
import math
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nq import tracking
from nq.tracking import how_to_open, safe_name, start

OURS = {"MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", *tracking.ENVIRONMENT}
QUICK_S = 5.0  # what losing the store may cost, on a busy machine


COMMAND = """
import sys
from nq import tracking
with tracking.start(enabled=False) as run:
    run.metrics({"a": 1})
assert "mlflow" not in sys.modules
tracking._import_mlflow()
with tracking.start(experiment="first") as run:
    run.metrics({"a": 1})
assert "tensorflow" not in sys.modules
"""


class FirstRuns:
    """Two commands that start at once where there is no store yet: it takes them seconds."""

    def __init__(self, folder: Path):
        self.folder = folder
        root = Path(tracking.__file__).parents[1]
        environment = {k: v for k, v in os.environ.items() if k not in OURS}
        running = [
            subprocess.Popen(
                [sys.executable, "-c", COMMAND],
                cwd=folder,
                env=environment | {"PYTHONPATH": str(root)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for _ in range(2)
        ]
        self.outputs = [process.communicate()[0] for process in running]
        self.codes = [process.returncode for process in running]
        self.database = folder / "mlflow.db"


@pytest.fixture(scope="session")
def first_runs(tmp_path_factory: pytest.TempPathFactory) -> FirstRuns:
    return FirstRuns(tmp_path_factory.mktemp("first"))


@pytest.fixture(autouse=True)
def fresh_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with mock.patch.dict(os.environ):
        for key in OURS:
            os.environ.pop(key, None)
        yield


@pytest.fixture
def store(first_runs: FirstRuns, tmp_path: Path) -> str:
    """A default store in the working folder of the test, copied rather than made."""
    shutil.copyfile(first_runs.database, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


@pytest.fixture(scope="module")
def server(first_runs: FirstRuns, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Server"]:
    folder = tmp_path_factory.mktemp("server")
    shutil.copyfile(first_runs.database, folder / "server.db")
    running = Server(folder)
    try:
        running.wait()
        yield running
    finally:
        running.kill()


class Server:
    """A tracking server of its own, with all of its worker processes in one group."""

    def __init__(self, folder: Path):
        self.uri = f"http://127.0.0.1:{free_port()}"
        self.output = folder / "output.txt"
        options = {
            "--host": "127.0.0.1",
            "--port": self.uri.rpartition(":")[2],
            "--workers": "1",
            "--backend-store-uri": f"sqlite:///{folder / 'server.db'}",
            "--artifacts-destination": str(folder / "artifacts"),
        }
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *sum(options.items(), ())],
                cwd=folder,
                env=os.environ | tracking.ENVIRONMENT | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "0"},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait(self) -> None:
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.uri}/health"):
                return
            time.sleep(0.1)
        raise TimeoutError(self.output.read_text())

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stored(run: tracking.Run) -> Any:
    """What MLflow says about a run."""
    from mlflow import MlflowClient

    return MlflowClient(tracking._absolute(run.uri)).get_run(run.run_id)


def the_warning(caplog: pytest.LogCaptureFixture) -> str:
    """The one line that a lost store may cost."""
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert record.levelno == logging.WARNING
    assert record.name == "nq.tracking"
    message = record.getMessage()
    assert "\n" not in message
    assert "goes on untracked" in message
    return message


def use(run: tracking.Run, folder: Path) -> None:
    """Every call that a command makes."""
    (folder / "answers.json").write_text("{}")
    run.params({"profile": "mixed+xla"})
    run.tags({"device": "cpu"})
    run.metrics({"quality/long_f1": 0.5})
    run.dataset("dev", folder / "dev.jsonl", "sha256:12")
    run.artifacts([folder / "answers.json"], folder="predictions")


# ------------------------------------------------------------------------------ what is recorded


def test_a_run_is_recorded(store: str, tmp_path: Path) -> None:
    with start(name="mixed+xla dev", profile="mixed+xla", tags={"device": "cpu"}) as run:
        run.params({"profile": "mixed+xla", "batch_size": 8, "threshold": None})
        run.metrics({"quality/long_f1": np.float32(0.5), "time/predict_s": 3})
        run.metrics({"loss": 2.0}, step=1)
        run.metrics({"loss": 1.0}, step=2)
    assert run.uri == "sqlite:///mlflow.db"
    seen = stored(run)
    assert seen.info.run_name == "mixed+xla dev"
    assert seen.info.status == "FINISHED"
    assert seen.data.params == {"profile": "mixed+xla", "batch_size": "8", "threshold": "None"}
    figures = {"quality/long_f1": 0.5, "time/predict_s": 3.0, "loss": 1.0}
    assert {k: v for k, v in seen.data.metrics.items() if not k.startswith("system/")} == figures
    tags = seen.data.tags
    assert tags["device"] == "cpu"
    assert tags["mlflow.runColor"] == tracking.colour("mixed+xla")
    assert tags["version.numpy"] == np.__version__
    assert {"host", "version.python", "version.mlflow"} <= set(tags)


def test_everything_lies_in_the_working_folder(store: str, tmp_path: Path) -> None:
    with start() as run:
        use(run, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"answers.json", "mlflow.db", "mlruns"}
    kept = tmp_path / "mlruns" / "nq" / str(run.run_id) / "artifacts" / "predictions"
    assert (kept / "answers.json").read_text() == "{}"


def test_the_environment_names_store_and_experiment(store: str, tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").rename(tmp_path / "other.db")
    os.environ["MLFLOW_TRACKING_URI"] = "sqlite:///other.db"
    os.environ["MLFLOW_EXPERIMENT_NAME"] = "a study/of mine"
    with start(system_metrics=False) as first, start(system_metrics=False) as second:
        second.artifacts([__file__])
    assert first.uri == "sqlite:///other.db"
    assert first.experiment_id == second.experiment_id
    assert not (tmp_path / "mlflow.db").exists()
    assert stored(second).info.artifact_uri.endswith(f"a study_of mine/{second.run_id}/artifacts")


def test_artifacts_come_back(store: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    shards = tmp_path / "shards"
    (shards / "deep").mkdir(parents=True)
    (shards / "deep" / "0.bin").write_bytes(b"\0\1")
    (tmp_path / "predictions.json").write_text("[]")
    with start(store) as run:
        run.artifacts([tmp_path / "predictions.json", str(shards)], folder="out")
        run.artifacts([tmp_path / "predictions.json"])
    back = Path(MlflowClient(store).download_artifacts(run.run_id, "", str(tmp_path)))
    assert (back / "predictions.json").read_text() == "[]"
    assert (back / "out" / "predictions.json").read_text() == "[]"
    assert (back / "out" / "deep" / "0.bin").read_bytes() == b"\0\1"


def test_files_are_added_to_a_run_that_has_ended(store: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    with start(store, system_metrics=False) as run:
        pass
    ended = stored(run).info.end_time
    (tmp_path / "page.html").write_text("<p/>")
    line = tracking.attach([tmp_path / "page.html"], str(run.run_id), store)
    assert line == run.how_to_open()
    assert [f.path for f in MlflowClient(store).list_artifacts(run.run_id)] == ["page.html"]
    assert (stored(run).info.status, stored(run).info.end_time) == ("FINISHED", ended)


@pytest.mark.parametrize(
    ("uri", "reason"), [(None, "not found"), ("sqlite:///other.db", "there is no database")]
)
def test_no_run_to_add_files_to(
    uri: str | None, reason: str, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert tracking.attach([__file__], "0" * 32, uri) is None
    assert reason in the_warning(caplog)
    assert not Path("other.db").exists()


def test_a_dataset_is_named_and_not_read(store: str, tmp_path: Path) -> None:
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


def test_what_is_no_figure_is_left_out(store: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "nq.tracking")
    none: dict[str, Any] = {"a": None, "b": math.nan, "c": math.inf, "d": "fast", "e": [1], "f": {}}
    with start(store, system_metrics=False) as run:
        run.metrics(none | {"yes": True, "long-recall-at-precision>=0.5": 0.25})
    assert stored(run).data.metrics == {"yes": 1.0, "long-recall-at-precision-ge-0.5": 0.25}
    assert "6 metrics have no value" in caplog.text


def test_long_texts_are_cut_and_many_fit(store: str) -> None:
    with start(store, system_metrics=False) as run:
        run.params({f"p{i}": i for i in range(250)} | {"long": "x" * 7000})
        run.tags({f"t{i}": i for i in range(250)} | {"long": "x" * 9000, "a>=b@c": 1})
        run.metrics({f"m{i}": i for i in range(1200)})
    data = stored(run).data
    assert (len(data.params), len(data.metrics)) == (251, 1200)
    assert data.params["long"] == "x" * 5999 + "…"
    assert data.tags["long"] == "x" * 7999 + "…"
    assert (data.tags["t249"], data.tags["a-ge-b-at-c"]) == ("249", "1")


@given(st.text() | st.from_regex(r"[./ ab>\n-]*", fullmatch=True) | st.text("a/.", min_size=240))
@example("..").via("climbs")
@example("x" * 249 + "/y").via("cut at a slash")
def test_every_name_is_accepted_by_mlflow(name: str) -> None:
    from mlflow.utils.validation import _validate_metric, _validate_param, _validate_tag

    safe = safe_name(name)
    _validate_metric(safe, 1.0, 0, 0)
    _validate_param(safe, "")
    _validate_tag(safe, "")
    assert safe_name(safe) == safe


@pytest.mark.parametrize(
    "name", ["quality/long_f1", "time/predict_s", "mlflow.note.content", "a b:c"]
)
def test_a_good_name_stays(name: str) -> None:
    assert safe_name(name) == name


def test_profiles_differ_in_colour() -> None:
    parts = ("grappler", "mixed", "xla")
    names = ["+".join(some) for n in (1, 2, 3) for some in combinations(parts, n)]
    assert len({tracking.colour(name) for name in ["baseline", *names]}) == 8


def test_the_machine_is_sampled(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "SAMPLING_S", 0.1)
    with start(store) as run:
        time.sleep(0.5)
        run.metrics({"quality/long_f1": 0.5})
        assert list(stored(run).data.metrics) == ["quality/long_f1"]  # ours are the first
        begin = time.monotonic()
    assert time.monotonic() - begin < 1.5
    assert "system/cpu_utilization_percentage" in stored(run).data.metrics


def test_a_curve_keeps_its_steps(store: str) -> None:
    with start(store, system_metrics=False) as run:
        run.curve("train/loss", [0.5, math.nan, 0.25], 3)
        run.curve("train/loss", [1.0, 0.75])
    from mlflow import MlflowClient

    history = MlflowClient(store).get_metric_history(run.run_id, "train/loss")
    steps = sorted((point.step, point.value) for point in history)
    assert steps == [(1, 1.0), (2, 0.75), (3, 0.5), (5, 0.25)]


def test_sampling_can_be_turned_off(store: str) -> None:
    os.environ["MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING"] = "false"
    with start(store):
        assert not [t for t in threading.enumerate() if t.name == "SystemMetricsMonitor"]


# ------------------------------------------------------------------------------ how a run ends


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
    ],
)
def test_an_exception_ends_the_run_and_goes_on(
    store: str, error: BaseException, status: str, reason: str | None
) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised, start(store, system_metrics=False) as run:
        fail()
    assert raised.value is error
    assert stored(run).info.status == status
    assert stored(run).data.tags.get("error") == reason


def test_a_command_can_fail_without_an_exception(store: str) -> None:
    with start(store, system_metrics=False) as run:
        run.failed("3 bad records")
    assert stored(run).info.status == "FAILED"
    assert stored(run).data.tags["error"] == "3 bad records"


# ------------------------------------------------------------------------------ what goes wrong


def silent_server() -> Iterator[str]:
    """Takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://user:secret@127.0.0.1:{listener.getsockname()[1]}"


def dead_port() -> Iterator[str]:
    yield f"http://user:secret@127.0.0.1:{free_port()}/"


def no_database() -> Iterator[str]:
    Path("broken.db").write_bytes(b"This is a text, not a database. " * 100)
    yield "sqlite:///broken.db"


def someone_elses_database() -> Iterator[str]:
    with contextlib.closing(sqlite3.connect("theirs.db")) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        connection.execute("INSERT INTO alembic_version VALUES ('from_the_future')")
        connection.commit()
    yield "sqlite:///theirs.db"


def locked_database() -> Iterator[str]:
    with contextlib.closing(sqlite3.connect("busy.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("BEGIN IMMEDIATE")
        yield "sqlite:///busy.db"


def below_a_file() -> Iterator[str]:
    Path("file").write_text("")
    yield "sqlite:///file/mlflow.db"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (dead_port, "Connection refused"),
        (silent_server, "no answer within"),
        (no_database, "not a database"),
        (someone_elses_database, "from_the_future"),
        (locked_database, "locked"),
        (below_a_file, "file"),
        (lambda: iter(["runs"]), "give sqlite:///runs/mlflow.db"),
        (lambda: iter(["file:///srv/runs"]), "give sqlite:////srv/runs/mlflow.db"),
        (lambda: iter(["nq.db"]), "give sqlite:///nq.db"),
        (lambda: iter(["carrier-pigeon://loft"]), "unsupported URI"),
    ],
)
def test_a_store_out_of_reach_costs_a_line(
    place: Callable[[], Iterator[str]],
    reason: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracking, "CALL_S", 2.0)
    tracking._import_mlflow()
    with contextlib.contextmanager(place)() as uri:
        begin = time.monotonic()
        with start(uri) as run:
            use(run, tmp_path)
        assert time.monotonic() - begin < QUICK_S
    assert run.run_id is None
    assert run.how_to_open() is None
    warning = the_warning(caplog)
    assert reason in warning
    assert "--no-track" in warning
    assert "secret" not in warning
    assert capfd.readouterr() == ("", "")


def test_the_database_can_be_lost_on_the_way(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "CALL_S", 0.5)
    with start(store) as run:
        run.params({"profile": "xla"})
        with contextlib.closing(sqlite3.connect("mlflow.db", isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            use(run, tmp_path)
    assert "cannot write the params: no answer within 0.5 s" in the_warning(caplog)
    seen = stored(run)
    assert seen.data.params == {"profile": "xla"}
    assert seen.info.status == "FINISHED"


def test_an_artifact_that_is_not_there(store: str, caplog: pytest.LogCaptureFixture) -> None:
    with start(store) as run:
        run.artifacts(["nowhere.json"])
    assert "cannot copy the artifacts" in the_warning(caplog)
    assert stored(run).info.status == "FINISHED"


def test_the_users_own_patience_counts() -> None:
    assert tracking._patience() == tracking.CALL_S
    tracking._import_mlflow()
    assert tracking._patience() == tracking.CALL_S
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "20"
    assert tracking._patience() == 40
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "long"
    assert tracking._patience() == tracking.CALL_S


# ------------------------------------------------------------------------------ manners


def test_two_first_runs_at_once_say_nothing(first_runs: FirstRuns) -> None:
    assert first_runs.outputs == [b"", b""]
    assert first_runs.codes == [0, 0]
    assert {path.name for path in first_runs.folder.iterdir()} == {"mlflow.db"}
    with contextlib.closing(sqlite3.connect(first_runs.database)) as connection:
        assert connection.execute("SELECT status FROM runs").fetchall() == [("FINISHED",)] * 2


def test_telemetry_is_off_unless_asked_for() -> None:
    os.environ["DO_NOT_TRACK"] = "false"
    tracking._import_mlflow()
    assert os.environ["DO_NOT_TRACK"] == "false"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_a_run_opens_while_other_work_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waited for it would wait for ever: the work is what gives the database free."""
    monkeypatch.setattr(tracking, "CALL_S", 1.0)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with start(uri):
        pass
    with contextlib.closing(
        sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)
    ) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with start(uri) as run:
            connection.execute("ROLLBACK")
            assert run.run_id is not None


def test_passwords_are_not_shown() -> None:
    link = how_to_open("https://me:secret@host/mlflow/", "3", "ab")
    assert link == "https://***@host/mlflow/#/experiments/3/runs/ab?workflowType=machine_learning"


def test_runs_open_side_by_side() -> None:
    link = how_to_open("http://host:5000", "3")
    assert link.endswith("/experiments/3/runs?workflowType=machine_learning&compareRunsMode=CHART")


def test_the_line_that_opens_a_run(store: str) -> None:
    with start(system_metrics=False) as run:
        pass
    line = run.how_to_open()
    assert line is not None
    assert line.startswith("mlflow ui --backend-store-uri sqlite:///mlflow.db (then open http")
    assert f"/#/experiments/{run.experiment_id}/runs/{run.run_id}?" in line


# ------------------------------------------------------------------------------ with a server


def test_a_run_on_a_server(
    server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    with start(server.uri, "remote") as run:
        use(run, tmp_path)
    assert stored(run).info.status == "FINISHED"
    assert stored(run).data.params == {"profile": "mixed+xla"}
    client = MlflowClient(server.uri)
    assert [f.path for f in client.list_artifacts(run.run_id)] == ["predictions"]
    back = client.download_artifacts(run.run_id, "predictions/answers.json", str(tmp_path / ".."))
    assert Path(back).read_text() == "{}"
    assert str(run.how_to_open()).startswith(f"{server.uri}/#/experiments/")
    assert capfd.readouterr().out == ""


def test_a_server_that_dies_on_the_way(  # the last test: the server stays dead
    server: Server,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with start(server.uri) as run:
        run.params({"profile": "xla"})
        server.kill()
        begin = time.monotonic()
        use(run, tmp_path)
    assert time.monotonic() - begin < QUICK_S
    assert run.run_id is not None
    assert "cannot write the params: [Errno 111] Connection refused" in the_warning(caplog)
    assert capfd.readouterr() == ("", "")
