"""Tests of the store: its creation, and each way in which it can fail."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nq.tracking import Limits, start
from nq.tracking.store import SERVER_S, TABLES, import_mlflow
from tests.tracking.mlflow_stores import QUICK_S, FirstRuns, free_port, stored, the_warning, use

pytestmark = pytest.mark.slow  # importing MLflow takes ten seconds

# ------------------------------------------------------------------------ failures


def silent_server() -> Iterator[str]:
    """Yields the URI of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://user:secret@127.0.0.1:{listener.getsockname()[1]}"


def dead_port() -> Iterator[str]:
    yield f"http://user:secret@127.0.0.1:{free_port()}/"


def no_database() -> Iterator[str]:
    Path("broken.db").write_bytes(b"This is a text, not a database. " * 100)
    yield "sqlite:///broken.db"


def database_of_another_version() -> Iterator[str]:
    with contextlib.closing(sqlite3.connect("other.db")) as connection:
        connection.execute("CREATE TABLE experiments (x)")
        connection.execute("CREATE TABLE runs (x)")
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        connection.execute("INSERT INTO alembic_version VALUES ('from_the_future')")
        connection.commit()
    yield "sqlite:///other.db"


def locked_database() -> Iterator[str]:
    with contextlib.closing(sqlite3.connect("busy.db", isolation_level=None)) as connection:
        for name in TABLES:
            connection.execute(f"CREATE TABLE {name} (x)")
        connection.execute("BEGIN IMMEDIATE")
        yield "sqlite:///busy.db"


def below_a_file() -> Iterator[str]:
    Path("file").write_text("")
    yield "sqlite:///file/mlflow.db"


@pytest.mark.parametrize(
    ("failing_store", "reason"),
    [
        (dead_port, "Connection refused"),
        (silent_server, "no answer within"),
        (no_database, "not a database"),
        (database_of_another_version, "from_the_future"),
        (locked_database, "locked"),
        (below_a_file, "file"),
        (lambda: iter(["runs"]), "give sqlite:///runs/mlflow.db"),
        (lambda: iter(["file:///srv/runs"]), "give sqlite:////srv/runs/mlflow.db"),
        (lambda: iter(["nq.db"]), "give sqlite:///nq.db"),
        (lambda: iter(["carrier-pigeon://loft"]), "unsupported URI"),
    ],
)
def test_store_that_fails_costs_one_warning(
    failing_store: Callable[[], Iterator[str]],
    reason: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    import_mlflow()
    with contextlib.contextmanager(failing_store)() as uri:
        begin = time.monotonic()
        with start(uri, limits=Limits(call_s=2.0)) as run:
            use(run, tmp_path)
        assert time.monotonic() - begin < QUICK_S
    assert run.run_id is None
    assert run.how_to_open() is None
    warning = the_warning(caplog)
    assert reason in warning
    assert "--no-track" in warning
    assert "secret" not in warning
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("address", ["sqlite:///mine.db", "sqlite:///mine.db?timeout=5"])
@pytest.mark.parametrize("tables", [("users",), ("alembic_version", "users")])
def test_nothing_is_written_to_the_database_of_another_program(
    address: str, tables: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(sqlite3.connect("mine.db")) as connection:
        for name in tables:
            connection.execute(f"CREATE TABLE {name} (x)")
        connection.commit()
    before = Path("mine.db").read_bytes()
    with start(address, system_metrics=False) as run:
        run.metrics({"a": 1})
    assert "is a database of another program, with " in the_warning(caplog)
    assert Path("mine.db").read_bytes() == before
    assert sorted(path.name for path in Path().iterdir()) == ["mine.db"]


def test_database_that_is_locked_during_the_run_costs_one_warning(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with start(store, limits=Limits(call_s=0.5)) as run:
        run.params({"profile": "xla"})
        with contextlib.closing(sqlite3.connect("mlflow.db", isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            use(run, tmp_path)
    assert "cannot write the params: no answer within 0.5 s" in the_warning(caplog)
    recorded = stored(run)
    assert recorded.data.params == {"profile": "xla"}
    assert recorded.info.status == "FINISHED"


def test_database_that_is_busy_longer_than_a_server_may_be_is_waited_for(store: str) -> None:
    with start(store, system_metrics=False) as run:
        run.params({"profile": "xla"})
        with contextlib.closing(
            sqlite3.connect("mlflow.db", isolation_level=None, check_same_thread=False)
        ) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            end = threading.Timer(SERVER_S + 0.5, connection.rollback)
            end.start()
            run.metrics({"loss": 0.5})
            end.join()
    assert stored(run).data.metrics == {"loss": 0.5}


def test_missing_artifact_costs_one_warning(store: str, caplog: pytest.LogCaptureFixture) -> None:
    with start(store) as run:
        run.artifacts(["nowhere.json"])
    assert "cannot copy the artifacts" in the_warning(caplog)
    assert stored(run).info.status == "FINISHED"


def test_commands_work_without_mlflow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with start() as run:
        use(run, tmp_path)
        assert run.last_step("loss") == 0
    assert run.run_id is None
    install = (
        "MLflow is not installed: run pip install 'nq-pipeline[mlflow]'; the run is not recorded"
    )
    assert install in the_warning(caplog)
    assert {path.name for path in tmp_path.iterdir()} == {"answers.json"}


def test_timeout_set_for_mlflow_is_the_time_limit() -> None:
    assert Limits().call_s == Limits.of("http://tracking:5000").call_s == 6
    import_mlflow()
    assert Limits().call_s == 6
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "20"
    assert Limits().call_s == 40
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "long"
    assert Limits().call_s == 6


# ------------------------------------------------------------------------ creation, settings


def test_two_commands_can_create_the_database_at_the_same_time(first_runs: FirstRuns) -> None:
    assert first_runs.outputs == [b"", b""]
    assert first_runs.codes == [0, 0]
    assert {path.name for path in first_runs.folder.iterdir()} == {"mlflow.db"}
    with contextlib.closing(sqlite3.connect(first_runs.database)) as connection:
        assert connection.execute("SELECT status FROM runs").fetchall() == [("FINISHED",)] * 2


def test_telemetry_is_off_unless_the_user_has_turned_it_on() -> None:
    os.environ["DO_NOT_TRACK"] = "false"
    import_mlflow()
    assert os.environ["DO_NOT_TRACK"] == "false"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
