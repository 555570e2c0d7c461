"""MLflow's import and its tracking stores: servers, and databases that are checked or created."""

import contextlib
import importlib
import logging
import os
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from nq import extras
from nq.text import truncate, without_password

DEFAULT_URI = "sqlite:///mlflow.db"
DEFAULT_EXPERIMENT = "nq"
ENVIRONMENT = {
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # failures are reported here, in one line
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",  # seconds in which a server sends nothing
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
}
"""MLflow's settings in the environment; a variable that is already set keeps its value."""


def import_mlflow() -> None:
    """Imports MLflow without its messages on the terminal."""
    extras.require("mlflow")
    for key, value in ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    importlib.import_module("mlflow")
    for name in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(os.environ["MLFLOW_LOGGING_LEVEL"].upper())


def store(uri: str | None) -> str:
    """Returns the URI of the tracking store, by default that of MLflow's variable."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


def experiment_name(client: Any, name: str | None) -> str:
    """Returns the name of an experiment, by default that of MLflow's variables, then ``nq``.

    An id of no experiment is a ``mlflow.exceptions.MlflowException``.
    """
    named = name or os.environ.get("MLFLOW_EXPERIMENT_NAME")
    if named is None and (number := os.environ.get("MLFLOW_EXPERIMENT_ID")):
        named = client.get_experiment(number).name
    return named or DEFAULT_EXPERIMENT


def connect(uri: str) -> Any:
    """Returns an ``MlflowClient`` of a store; a database is created if there is none."""
    import_mlflow()
    from mlflow import MlflowClient

    path = database_path(uri)
    if path is None:
        return MlflowClient(uri)
    if path.exists():
        _check_database(path)
    else:
        _create_database(path)
    # the path is absolute, since MLflow caches stores by their URI
    return MlflowClient(uri if "?" in uri else f"sqlite:///{path}")


def database_path(uri: str) -> Path | None:
    """Returns the absolute path of the file of a SQLite URI, ``None`` for others, as for file:…"""
    path = uri.removeprefix("sqlite:///").partition("?")[0]
    is_file = uri.startswith("sqlite:///") and not path.startswith((":memory:", "file:"))
    return Path(path).absolute() if is_file and path else None


def _check_database(path: Path) -> None:
    """Checks that a file is empty or a database of MLflow.

    MLflow would add its tables to the database of another program, and tries to open a damaged one
    for minutes.
    """
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if tables and "experiments" not in tables:
        raise ValueError(
            f"{path} is the database of another program, with {', '.join(sorted(tables)[:3])}; "
            "give another --tracking-uri"
        )


def _create_database(path: Path) -> None:
    """Creates a database in a temporary folder and moves it to its place.

    MLflow creates its tables one by one, which takes seconds; a kill, or a second process that
    starts meanwhile, would leave a broken database.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".mlflow-", dir=path.parent) as folder:
        new = Path(folder, path.name)
        SqlAlchemyStore(f"sqlite:///{new}", str(path.parent / "mlruns")).engine.dispose()
        if not path.exists():
            new.rename(path)


def reason(error: BaseException, uri: str) -> str:
    """Returns the root cause of an exception in one line; MLflow wraps it several times.

    It shows no password, neither that of the store's ``uri`` nor another.
    """
    while (cause := error.__cause__ or error.__context__) and not isinstance(cause, LookupError):
        error = cause
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return truncate(without_password(line, uri), 300).rstrip(".")
