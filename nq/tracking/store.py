"""The store of the runs: MLflow imported quietly, a database made or checked, limits of time."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import shutil
import sqlite3
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nq.tracking.values import cut, safe_name

PREPARE_S = 120.0
"""How long importing MLflow and creating a database may take."""
CALL_S = 6.0
"""How long any other call may take."""
UPLOAD_S = 600.0
"""How long the artifacts of one call may take."""
LAST_S = 1.0
"""How long to wait for the end of what is lost or does not matter much."""

ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # what fails is told here, in one line
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
"""What MLflow is told through the environment, where the user has not said otherwise."""

_importing = threading.Lock()


def import_mlflow() -> None:
    """Import what a run needs, told to be quiet; later calls cost nothing."""
    with _importing:
        for key, value in ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        # MLflow's own use of SQLAlchemy
        warnings.filterwarnings("ignore", "The ``noload`` loader", DeprecationWarning)
        for module in ("store.tracking.sqlalchemy_store", "system_metrics.system_metrics_monitor"):
            importlib.import_module(f"mlflow.{module}")
        level = os.environ["MLFLOW_LOGGING_LEVEL"].upper()
        for name in ("mlflow", "alembic", "urllib3.connectionpool"):
            logging.getLogger(name).setLevel(level)


def prepare(uri: str, create: bool = True) -> None:
    """See to it that MLflow can open the store: what fails here fails fast, and says why."""
    if urlsplit(uri).scheme in ("", "file") and "MLFLOW_ALLOW_FILE_STORE" not in os.environ:
        folder = uri.removeprefix("file:").removeprefix("//").rstrip("/")
        database = folder if folder.endswith((".db", ".sqlite")) else f"{folder}/mlflow.db"
        raise ValueError(
            f"MLflow 3 keeps runs in a database, not in a plain folder: give sqlite:///{database}"
        )
    path = _database_path(uri)
    if path is not None and _has_content(path):
        _check_database(path)
    elif path is not None and not create:
        raise FileNotFoundError("there is no database")
    elif path is not None:
        _create_database(path)
    import_mlflow()


def _database_path(uri: str) -> Path | None:
    """The file of a plain SQLite URI, absolute."""
    path = uri.removeprefix("sqlite:///")
    if path == uri or not path or path.startswith((":memory:", "file:")) or "?" in path:
        return None
    return Path(path).absolute()


def absolute(uri: str) -> str:
    """The same store whatever the working folder: MLflow caches stores by their URI."""
    path = _database_path(uri)
    return uri if path is None else f"sqlite:///{path}"


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _check_database(path: Path) -> None:
    """Raise what SQLite says at once, where MLflow would try again for 100 seconds."""
    with contextlib.closing(sqlite3.connect(path, timeout=CALL_S / 2)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.rollback()


def _create_database(path: Path) -> None:
    """Put a database with all of MLflow's tables where there is none, at one stroke.

    MLflow takes seconds to create it step by step: a second process that starts meanwhile, or an
    interruption, would leave it broken for good. So it is made aside.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path.parent):  # fails early where nothing can be written
        pass
    import_mlflow()
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, path.name)
        SqlAlchemyStore(f"sqlite:///{made}", str(path.parent / "mlruns")).engine.dispose()
        try:
            shutil.copyfile(made, beside)
            _put(beside, path)
        finally:
            beside.unlink(missing_ok=True)


def _put(new: Path, path: Path) -> None:
    """Move a file to where there is none; if another process was first, its file stays."""
    try:
        os.link(new, path)  # never overwrites
    except OSError:  # there is one, or the file system has no links
        if not _has_content(path):
            new.replace(path)


def experiment_id(client: Any, name: str, uri: str) -> str:
    """Id of the experiment, made where there is none; files of the runs lie by the database."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        path = _database_path(uri)
        place = path and str(path.parent / "mlruns" / safe_name(name).replace("/", "_"))
        try:
            return str(client.create_experiment(name, artifact_location=place))
        except MlflowException:
            found = client.get_experiment_by_name(name)  # another process was first
            if found is None:
                raise
    return str(found.experiment_id)


def within(seconds: float, action: Callable[[], object]) -> Exception | None:
    """What goes wrong in ``action()``, or that it takes too long; then it is left behind."""
    errors: list[Exception] = []

    def work() -> None:
        try:
            action()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="nq-tracking", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return TimeoutError(f"no answer within {seconds:g} s")
    return errors[0] if errors else None


def patience() -> float:
    """Seconds that a call may take: ours, unless the user has set MLflow's own."""
    key = "MLFLOW_HTTP_REQUEST_TIMEOUT"
    with contextlib.suppress(KeyError, ValueError):
        if os.environ[key] != ENVIRONMENT[key]:
            tries = 1 + int(os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"])
            return float(os.environ[key]) * tries
    return CALL_S


def reason(error: BaseException) -> str:
    """The deepest cause in one line: MLflow wraps it four times over."""
    chain = [error]
    while (deeper := chain[-1].__cause__ or chain[-1].__context__) and deeper not in chain:
        chain.append(deeper)
    told = next((e for e in reversed(chain) if not isinstance(e, LookupError)), error)
    line = (str(told).strip() or type(told).__name__).splitlines()[0]
    return cut(without_password(line), 300).rstrip(".")


def without_password(text: str) -> str:
    """A text whose URIs show neither user nor password."""
    return re.sub(r"//[^/@\s]+@", "//***@", text)
