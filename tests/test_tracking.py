"""Tests with MLflow's own stores: what is recorded, how a run begins, fails and ends."""

import contextlib
import json
import logging
import math
import os
import shutil
import signal
import socket
import sqlite3
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from nq import tracking
from nq.config import TrackingConfig
from nq.mlflow_store import ENVIRONMENT, connect, database_path
from nq.tracking import Run
from nq.worker import Worker, run_module
from tests.conftest import OncePerRun
from tests.support.child_processes import free_port, python, started, wait_until

pytestmark = pytest.mark.slow  # importing MLflow takes ten seconds

QUICK_S = 40.0  # maximum delay by a store that fails, on a busy machine; MLflow waits a minute
FIRST = """
import sys
from nq import tracking
from nq.config import TrackingConfig
with tracking.Run(None) as run:
    run.metrics({"a": 1})
assert "mlflow" not in sys.modules
with tracking.Run(TrackingConfig(experiment="first")) as run:
    run.metrics({"a": 1})
assert "tensorflow" not in sys.modules
"""


def run_two_first_commands(folder: Path) -> None:
    """Two commands start at the same time in a folder without a database."""
    with started("-c", FIRST, folder=folder) as one, started("-c", FIRST, folder=folder) as other:
        outputs = ["".join(process.communicate()) for process in (one, other)]
    (folder / "outputs.json").write_text(json.dumps(outputs))


@pytest.fixture
def first_runs(once_per_run: OncePerRun) -> Path:
    return once_per_run("mlflow-first-runs", run_two_first_commands)


@pytest.fixture(autouse=True)
def fresh_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with mock.patch.dict(os.environ):
        for key in [key for key in os.environ if key.startswith("MLFLOW_")]:
            del os.environ[key]
        yield


@pytest.fixture
def store(first_runs: Path, tmp_path: Path) -> str:
    """Copies a database to the default place in the working folder, which is faster than MLflow."""
    shutil.copyfile(first_runs / "mlflow.db", tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def stored(run: Run) -> Any:
    """Returns the run as MLflow has recorded it."""
    return connect(run.uri).get_run(run.run_id)


def statuses(database: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT status FROM runs ORDER BY rowid")
        return [status for (status,) in rows]


def the_warning(caplog: pytest.LogCaptureFixture) -> str:
    """Returns the text of the only warning, which must be one line."""
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    message = record.getMessage()
    assert record.name == "nq.tracking"
    assert "\n" not in message and "the run is not recorded" in message
    return message


def use(run: Run, folder: Path) -> None:
    """Makes every call that a command makes."""
    (folder / "answers.json").write_text("{}")
    run.params({"profile": "mixed+xla"})
    run.tags({"device": "cpu"})
    run.dataset(["data/dev.jsonl"], ["0123456789ab" * 5])
    run.model("small · mixed+xla", {"profile": "mixed+xla"}, {"weights": "12"})
    run.metrics({"long_f1": 0.5})
    run.artifacts([folder / "answers.json"])


# --- what is recorded ---------------------------------------------------------------------------


def test_a_run_is_recorded(store: str, tmp_path: Path) -> None:
    import mlflow

    uri = mlflow.get_tracking_uri()
    numbers = {f"m{i}": float(i) for i in range(1200)}
    with Run(TrackingConfig(), name="mixed+xla dev") as run:
        use(run, tmp_path)
        run.params({f"p{i}": i for i in range(250)} | {"long": "x" * 7000, "threshold": None})
        run.metrics({"time.predict_s": np.float32(3), "nan": math.nan, "inf": math.inf} | numbers)
        run._wait()
        # the settings of the process are kept
        assert (mlflow.active_run(), mlflow.get_tracking_uri()) == (None, uri)
    recorded = stored(run)
    assert (recorded.info.run_name, recorded.info.status) == ("mixed+xla dev", "FINISHED")
    params, tags = recorded.data.params, recorded.data.tags
    assert (params["profile"], params["threshold"], params["p249"]) == ("mixed+xla", "None", "249")
    assert params["long"] == "x" * 6000
    assert recorded.data.metrics == {"long_f1": 0.5, "time.predict_s": 3.0, **numbers}
    assert (tags["device"], tags["mlflow.source.name"]) == ("cpu", "nq.answer")
    assert {"host", "version.python", "version.mlflow", "mlflow.user"} <= set(tags)
    (dataset,) = [entry.dataset for entry in recorded.inputs.dataset_inputs]
    assert (dataset.name, dataset.digest) == ("dev.jsonl", "0123456789ab")
    assert json.loads(dataset.source) == {"uri": "data/dev.jsonl"}
    # all files are beside the database
    assert {p.name for p in tmp_path.iterdir()} == {"answers.json", "mlflow.db", "mlruns"}
    folder = tmp_path / "mlruns" / "nq" / str(run.run_id) / "artifacts"
    assert (folder / "answers.json").read_text() == "{}"
    assert run.how_to_open == "nq ui"


# --- beginning and end --------------------------------------------------------------------------


def test_two_commands_create_the_database_at_the_same_time(first_runs: Path) -> None:
    assert json.loads((first_runs / "outputs.json").read_text()) == ["", ""]
    assert statuses(first_runs / "mlflow.db") == ["FINISHED"] * 2


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (KeyboardInterrupt(), "KILLED", None),
        (SystemExit(143), "KILLED", None),
        (
            ValueError("none at\ndb://me:sec@re/t to@host/runs?sslkey=secret&b=c"),
            "FAILED",
            "ValueError: none at\ndb://***@host/runs?sslkey=***&b=c",
        ),
    ],
)
def test_exception_ends_the_run_and_is_not_suppressed(
    store: str, error: BaseException, status: str, reason: str | None
) -> None:
    with pytest.raises(type(error)) as raised, Run(TrackingConfig(store)) as run:
        run.open(started=1e9)
        run.metrics({"a": 1})
        run.ended = 1e9 + 90
        run_id = run.run_id
        raise error
    assert raised.value is error
    recorded = connect(store).get_run(run_id)
    assert recorded.info.status == status
    assert recorded.data.tags.get("error") == reason
    assert (recorded.info.start_time, recorded.info.end_time) == (10**12, 10**12 + 90_000)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_command_that_cannot_start_leaves_no_run(error: type[BaseException], store: str) -> None:
    """Otherwise Ctrl-C would begin with the import of MLflow, which takes seconds."""
    before = Path("mlflow.db").read_bytes()
    with pytest.raises(error), Run(TrackingConfig(store)) as run:
        raise error
    assert (run.run_id, run.how_to_open) == (None, None)
    assert Path("mlflow.db").read_bytes() == before


KILLED = """
import os, signal, sys
from pathlib import Path
from nq import tracking
from nq.config import TrackingConfig
with tracking.Run(TrackingConfig(sys.argv[1])) as run:
    run.open(Path(sys.argv[2]))
    run.metrics({"loss": [3.0, 2.0]}, 1)
    run._wait()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_run_after_a_killed_or_failed_one_names_it(store: str, tmp_path: Path) -> None:
    file = tmp_path / "run"
    killed = python("-c", KILLED, store, file, folder=tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    first = file.read_text(encoding="utf-8").strip()
    assert connect(store).get_run(first).info.status == "RUNNING"
    with pytest.raises(ValueError, match="memory"), Run(TrackingConfig(store)) as second:
        second.open(file)
        assert stored(second).data.tags[tracking.RESUMES] == first
        raise ValueError("out of memory")
    with Run(TrackingConfig(store)) as third:
        third.open(file)
        assert stored(third).data.tags[tracking.RESUMES] == second.run_id
    assert sorted(statuses(tmp_path / "mlflow.db")[2:]) == ["FAILED", "FINISHED", "KILLED"]
    assert not file.exists()


# --- failures -----------------------------------------------------------------------------------


def silent_server() -> Iterator[str]:
    """Yields the URI of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://user:secret@127.0.0.1:{listener.getsockname()[1]}"


def no_uri() -> Iterator[str]:
    """Yields one whose password is not encoded, so that its parts are taken for host and port."""
    yield "http://user:secret/hidden@127.0.0.1:1"


def no_database() -> Iterator[str]:
    Path("broken.db").write_bytes(b"This is a text, not a database. " * 100)
    yield "sqlite:///broken.db"


def another_program() -> Iterator[str]:
    with contextlib.closing(sqlite3.connect("mine.db")) as connection:
        connection.execute("CREATE TABLE users (x)")
    before = Path("mine.db").read_bytes()
    yield "sqlite:///mine.db"
    assert Path("mine.db").read_bytes() == before


def test_only_a_uri_of_sqlite_is_a_file() -> None:
    assert database_path("sqlite:////data/runs.db?timeout=5") == Path("/data/runs.db")
    # the last is a URI of SQLite's own, which MLflow opens
    for uri in ("postgresql://me@host/runs?x", "mlruns?x", "sqlite:///file:runs.db?uri=true"):
        assert database_path(uri) is None


@pytest.mark.parametrize(
    ("failing_store", "reason"),
    [
        (silent_server, "timed out"),
        (no_uri, "is not a valid host or port"),
        (no_database, "not a database"),
        (another_program, "is the database of another program, with users"),
    ],
)
@pytest.mark.usefixtures("store")
def test_store_that_fails_costs_one_warning(
    failing_store: Callable[[], Iterator[str]],
    reason: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "1"
    with contextlib.contextmanager(failing_store)() as uri, Run(TrackingConfig(uri)) as run:
        use(run, tmp_path)
    assert (run.run_id, run.how_to_open) == (None, None)
    warning = the_warning(caplog)
    assert reason in warning and "--no-track" in warning
    assert "secret" not in warning and "hidden" not in warning
    assert capfd.readouterr() == ("", "")
    own = {"answers.json", "mlflow.db", "broken.db", "mine.db"}
    assert {path.name for path in tmp_path.iterdir()} <= own


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_call_that_does_not_end_costs_a_time_limit(
    is_interrupted: bool,
    store: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = threading.Event()
    with contextlib.suppress(KeyboardInterrupt), Run(TrackingConfig(store)) as run:
        assert run.run_id
        begin = time.monotonic()
        run._call("write a file", ends.wait)
        run.metrics({"a": 1})
        if is_interrupted:
            raise KeyboardInterrupt
        monkeypatch.setattr(tracking, "LIMIT_S", 1.0)
        run._wait()
        assert not run.available
    assert time.monotonic() - begin < QUICK_S
    ends.set()
    assert run._thread
    run._thread.join(QUICK_S)
    recorded = connect(store).get_run(run._info.run_id)
    assert recorded.data.metrics == {}
    if is_interrupted:
        assert recorded.info.status == "KILLED" and not caplog.records
    else:
        assert "cannot write a file: no answer within 1.0 s" in the_warning(caplog)


# --- a real server, which hangs -----------------------------------------------------------------


HANGING = """
import os, signal, sys, time
from nq import tracking
from nq.config import TrackingConfig
with tracking.Run(TrackingConfig(sys.argv[1])) as run:
    run.params({"profile": "xla"})
    run._wait()
    tracking.LIMIT_S = 1.0
    os.killpg(int(sys.argv[2]), signal.SIGSTOP)
    begin = time.time()
    run.metrics({"a": 1})
print(begin)
"""


@pytest.fixture
def server(store: str) -> Iterator[tuple[str, int]]:
    """MLflow's own server: its URI, and its process group."""
    port = free_port()
    variables = {**ENVIRONMENT, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "0"}
    worker = Worker(run_module, name="a tracking server", variables=variables)
    options = ["--port", str(port), "--workers", "1", "--backend-store-uri", store]
    worker.send(["mlflow", "server", *options, "--artifacts-destination", "artifacts"])
    uri = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{uri}/health"):
            return True
        return False

    wait_until(answers, worker.process)
    yield uri, worker.process.pid
    os.killpg(worker.process.pid, signal.SIGKILL)
    worker.end()


def test_a_server_records_a_run_and_hangs(server: tuple[str, int], tmp_path: Path) -> None:
    uri, group = server
    with Run(TrackingConfig(uri, "remote")) as run:
        use(run, tmp_path)
    recorded = stored(run)
    assert recorded.info.status == "FINISHED"
    assert recorded.data.params == {"profile": "mixed+xla"}
    client = connect(uri)
    (model,) = client.search_logged_models([recorded.info.experiment_id])
    assert (model.name, model.params["profile"]) == ("small · mixed+xla", "mixed+xla")
    assert [metric.key for metric in model.metrics] == ["long_f1"]
    assert [one.path for one in client.list_artifacts(run.run_id)] == ["answers.json"]
    assert str(run.how_to_open).startswith(f"{uri}/#/experiments/")
    # MLflow's asynchronous logging would wait for a minute at the exit of the process
    process = python("-c", HANGING, uri, group, folder=tmp_path)
    assert time.time() - float(process.stdout) < QUICK_S
    (warning,) = process.stderr.splitlines()
    assert "cannot write the metrics: no answer within 1.0 s" in warning


def test_the_experiment_is_the_one_of_mlflows_variables(store: str) -> None:
    client = connect(store)

    def recorded(**settings: Any) -> str:
        with Run(TrackingConfig(store, **settings)) as run:
            experiment_id = stored(run).info.experiment_id
        return str(client.get_experiment(experiment_id).name)

    os.environ["MLFLOW_EXPERIMENT_ID"] = client.create_experiment("thesis")
    assert recorded() == "thesis"
    os.environ["MLFLOW_EXPERIMENT_NAME"] = "other"
    assert recorded() == "other" and recorded(experiment="named") == "named"


# --- the run that MLFLOW_RUN_ID names -----------------------------------------------------------


@pytest.mark.parametrize(("code", "status"), [(0, "FINISHED"), (143, "KILLED")])
def test_the_given_run_is_continued_and_ended(
    code: int, status: str, store: str, tmp_path: Path
) -> None:
    client, file = connect(store), tmp_path / "run"
    experiment = client.create_experiment("thesis")
    given = client.create_run(experiment, 10**12, {"mlflow.source.name": "git"}, "mine")
    run_id = given.info.run_id
    for name, value in {"profile": "auto", "limit": "3"}.items():
        client.log_param(run_id, name, value)
    file.write_text(run_id, encoding="utf-8")  # of the same run, which was killed
    os.environ.update(MLFLOW_RUN_ID=run_id, MLFLOW_EXPERIMENT_NAME="other")
    with contextlib.suppress(SystemExit), Run(TrackingConfig(store), "another") as run:
        run.open(file)
        run.params({"profile": "mixed+xla", "limit": 3, "model": "small"})
        use(run, tmp_path)
        run._wait()
        assert stored(run).info.status == "RUNNING"
        if code:
            raise SystemExit(code)
    recorded = client.get_run(run_id)
    assert (recorded.info.status, recorded.info.run_name) == (status, "mine")
    assert recorded.info.start_time == 10**12
    assert recorded.data.params == {"profile": "auto", "limit": "3", "model": "small"}
    tags = recorded.data.tags
    assert (tags["mlflow.source.name"], tags["profile"]) == ("git", "mixed+xla")
    assert not {"limit", tracking.RESUMES} & set(tags) and "version.python" in tags
    assert recorded.data.metrics == {"long_f1": 0.5}
    assert [one.path for one in client.list_artifacts(run_id)] == ["answers.json"]
    with Run(TrackingConfig(store)) as second:
        assert second.run_id != run_id


def test_the_first_run_has_the_given_name_if_it_is_new(store: str) -> None:
    def recorded(name: str) -> str:
        with Run(TrackingConfig(store), name) as run:
            return str(stored(run).info.run_name)

    os.environ["MLFLOW_RUN_NAME"] = "mine\n"
    assert [recorded("first"), recorded("second")] == [r"mine\u000a", "second"]
    os.environ["MLFLOW_RUN_ID"] = connect(store).create_run("0", run_name="given").info.run_id
    os.environ["MLFLOW_RUN_NAME"] = "mine"
    assert [recorded("first"), recorded("second")] == ["given", "second"]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("unknown", "Run with id=0123456789abcdef not found"),
        ("finished", "it is finished"),
        ("deleted", "must be in the 'active' state. Current state is deleted"),
        ("running", "it belongs to the experiment thesis, not other"),
    ],
)
def test_a_run_that_cannot_be_continued_costs_one_warning(
    state: str, reason: str, store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(store)
    run_id = client.create_run(client.create_experiment("thesis")).info.run_id
    if state == "finished":
        client.set_terminated(run_id)
    if state == "deleted":
        client.delete_run(run_id)
    before = client.get_run(run_id).to_dictionary()
    given = "0123456789abcdef" if state == "unknown" else run_id
    os.environ["MLFLOW_RUN_ID"] = given
    with Run(TrackingConfig(store, "other" if state == "running" else None)) as run:
        use(run, tmp_path)
    warning = the_warning(caplog)
    assert f"cannot continue the run {given} of MLFLOW_RUN_ID" in warning
    assert reason in warning
    assert client.get_run(run_id).to_dictionary() == before
