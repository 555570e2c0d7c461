"""The tracking store: its address, the creation of a database, calls with a time limit."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import shlex
import sqlite3
import tempfile
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nq.extras import require
from nq.text import truncate
from nq.tracking.view import KEY

DEFAULT_URI = "sqlite:///mlflow.db"
WORKFLOW = "workflowType=machine_learning"

ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # failures are reported here, in one line
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "true",
    "MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL": "3",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
"""MLflow's settings in the environment; a variable that is already set keeps its value."""

TABLES = {"alembic_version", "experiments", "runs"}
"""Some tables of every database of MLflow."""


SERVER_S = 6.0
"""Time limit of a call to a server, of which several may hang one after the other."""

DATABASE_S = 30.0
"""Time limit of a call to a database file, which a busy disk or another process may delay."""


def _call_limit() -> float:
    """Returns ``SERVER_S``, or the time of all tries if the user has set MLflow's own timeout."""
    with contextlib.suppress(KeyError, ValueError):
        retries = int(os.environ.get("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1"))
        return float(os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"]) * (1 + retries)
    return SERVER_S


@dataclass(frozen=True)
class Limits:
    """Time limits of the calls to MLflow, in seconds."""

    call_s: float = field(default_factory=_call_limit)
    open_s: float = 120.0  # import of MLflow and creation of a database
    upload_s: float = 600.0
    lost_s: float = 1.0  # end of a run after a failure
    killed_s: float = 2.0  # each of two steps of the end of a run after an interruption

    @classmethod
    def of(cls, uri: str) -> Limits:
        """Returns the time limits of a store: a file has more time than a server."""
        return cls() if database_path(uri) is None else cls(call_s=DATABASE_S)


def connect(uri: str, limits: Limits, create: bool = True) -> Any:
    """Returns an ``MlflowClient`` of a store; ``create`` allows the creation of a database.

    Raises:
        Exception: The store cannot be used. MLflow itself would try again for up to 100 seconds.
    """
    require("mlflow")
    if urlsplit(uri).scheme in ("", "file") and "MLFLOW_ALLOW_FILE_STORE" not in os.environ:
        folder = uri.removeprefix("file:").removeprefix("//").rstrip("/")
        database = folder if folder.endswith((".db", ".sqlite")) else f"{folder}/mlflow.db"
        raise ValueError(f"MLflow 3 needs a database, not a folder: give sqlite:///{database}")
    path, file = database_path(uri), database_path(uri.partition("?")[0])
    if file is not None and _has_content(file):
        _check_database(file, limits.call_s / 2)
    elif path is not None and not create:
        raise FileNotFoundError("there is no database")
    elif path is not None:
        _create_database(path)
    import_mlflow()
    from mlflow import MlflowClient

    return call_within(limits.call_s, lambda: MlflowClient(absolute(uri)))


def _check_database(path: Path, timeout_s: float) -> None:
    """Checks that a database is MLflow's and can be written; nothing is written to it.

    Raises:
        sqlite3.Error: the file is no database, or locked.
        ValueError: the database is another program's, to which MLflow would add its tables.
    """
    with contextlib.closing(sqlite3.connect(path, timeout=timeout_s)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if names and not names >= TABLES:
            raise ValueError(
                f"{path} is a database of another program, with {', '.join(sorted(names)[:3])}, "
                f"expected MLflow's tables or no file: give another --tracking-uri"
            )
        connection.execute("BEGIN IMMEDIATE")


def import_mlflow() -> None:
    """Imports the parts of MLflow that a run needs, without its messages on the terminal."""
    for key, value in ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    # MLflow itself uses what SQLAlchemy warns of
    warnings.filterwarnings("ignore", "The ``noload`` loader", DeprecationWarning)
    # MLflow warns of type hints in its own code when it is imported
    warnings.filterwarnings("ignore", ".*Any type hint is inferred as AnyType", UserWarning)
    importlib.import_module("mlflow.store.tracking.sqlalchemy_store")
    for name in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(os.environ["MLFLOW_LOGGING_LEVEL"].upper())


def _create_database(path: Path) -> None:
    """Creates a database in a temporary folder and moves it to its place in one step.

    MLflow creates the tables one by one, which takes seconds. A second process that starts
    meanwhile, or an interruption, would leave a broken database.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".mlflow-", dir=path.parent) as folder:
        import_mlflow()
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        new = Path(folder, path.name)
        SqlAlchemyStore(f"sqlite:///{new}", str(path.parent / "mlruns")).engine.dispose()
        try:
            os.link(new, path)  # unlike a rename, never replaces the database of another process
        except OSError:  # the database exists now, or the file system has no links
            if not _has_content(path):
                new.replace(path)


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def database_path(uri: str) -> Path | None:
    """Returns the absolute path of the file of a plain SQLite URI, ``None`` for other URIs."""
    path = uri.removeprefix("sqlite:///")
    if path == uri or not path or path.startswith((":memory:", "file:")) or "?" in path:
        return None
    return Path(path).absolute()


def absolute(uri: str) -> str:
    """Returns the URI with an absolute path, since MLflow caches stores by their URI.

    SQLite waits for the lock of another process within the time limit of a call.
    """
    path = database_path(uri)
    return uri if path is None else f"sqlite:///{path}?timeout={DATABASE_S:.0f}"


def how_to_open(uri: str, experiment_id: str, run_id: str) -> str:
    """Returns the link or command that shows a run.

    >>> how_to_open("http://tracking:5000", "1", "ab12")
    'http://tracking:5000/#/experiments/1/runs/ab12?workflowType=machine_learning'
    """
    return _page(uri, f"/#/experiments/{experiment_id}/runs/{run_id}?{WORKFLOW}")


def how_to_compare(uri: str, experiment_id: str) -> str:
    """Returns the link or command that shows the table of an experiment's runs.

    >>> how_to_compare("http://tracking:5000", "1")
    'http://tracking:5000/#/experiments/1/runs?viewStateShareKey=nq&workflowType=machine_learning'
    """
    return _page(uri, f"/#/experiments/{experiment_id}/runs?viewStateShareKey={KEY}&{WORKFLOW}")


def _page(uri: str, page: str) -> str:
    uri = without_password(uri)
    if urlsplit(uri).scheme in ("http", "https"):
        return uri.rstrip("/") + page
    command = f"mlflow ui --backend-store-uri {shlex.quote(uri)}"
    return f"{command} (then open http://127.0.0.1:5000{page})"


def without_password(text: str) -> str:
    """Returns a text whose URIs show neither user nor password."""
    return re.sub(r"//[^/@\s]+@", "//***@", text)


def start_system_monitor(uri: str, run_id: str) -> Any:
    """Returns MLflow's monitor of processor, memory and GPU; ``None`` if it is off or fails.

    ``mlflow.start_run(log_system_metrics=True)`` would record only in the store of the whole
    process, which is not changed (``test_mlflow_settings_of_the_process_are_kept``).
    """
    with contextlib.suppress(Exception):  # psutil may be missing
        from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        if MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.get():
            monitor = SystemMetricsMonitor(run_id, tracking_uri=absolute(uri))
            monitor.start()
            return monitor
    return None


def in_thread(function: Callable[[], Any]) -> Future[Any]:
    """Returns the result of a function that begins to run in a daemon thread.

    MLflow's asynchronous logging does not replace this: it waits for its threads when Python
    exits (``test_server_that_hangs_does_not_delay_exit``), and it is for metrics, params and tags.
    """
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=work, name="nq-tracking", daemon=True).start()
    return future


def call_within(limit_s: float | None, function: Callable[[], Any]) -> Any:
    """Returns the result of a function, which continues in its thread after a TimeoutError."""
    future = in_thread(function)
    wait([future], limit_s)
    if not future.done():
        raise TimeoutError(f"no answer within {limit_s} s")
    return future.result()


def reason(error: BaseException) -> str:
    """Returns the deepest cause in one line, since MLflow wraps it several times."""
    while (cause := error.__cause__ or error.__context__) and not isinstance(cause, LookupError):
        error = cause
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return truncate(without_password(line), 300).rstrip(".")
