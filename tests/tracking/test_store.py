"""The store: who makes it, what can be wrong with it, and what that costs."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nq.tracking import start
from nq.tracking.store import CALL_S, import_mlflow, patience
from tests.tracking.mlflow_stores import QUICK_S, FirstRuns, free_port, stored, the_warning, use

# ------------------------------------------------------------------------ what goes wrong


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
    monkeypatch.setattr("nq.tracking.store.CALL_S", 2.0)
    import_mlflow()
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
    monkeypatch.setattr("nq.tracking.store.CALL_S", 0.5)
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
    assert patience() == CALL_S
    import_mlflow()
    assert patience() == CALL_S
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "20"
    assert patience() == 40
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "long"
    assert patience() == CALL_S


# ------------------------------------------------------------------------ manners


def test_two_first_runs_at_once_say_nothing(first_runs: FirstRuns) -> None:
    assert first_runs.outputs == [b"", b""]
    assert first_runs.codes == [0, 0]
    assert {path.name for path in first_runs.folder.iterdir()} == {"mlflow.db"}
    with contextlib.closing(sqlite3.connect(first_runs.database)) as connection:
        assert connection.execute("SELECT status FROM runs").fetchall() == [("FINISHED",)] * 2


def test_telemetry_is_off_unless_asked_for() -> None:
    os.environ["DO_NOT_TRACK"] = "false"
    import_mlflow()
    assert os.environ["DO_NOT_TRACK"] == "false"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
