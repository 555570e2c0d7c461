"""Tracking: one flat MLflow run per command. The only module that imports MLflow.

Tracking is a guest: whatever happens to it, the answers are written. The first failure (a server
that is down, refuses or hangs, a database that is locked, broken or cannot be written) costs one
warning line and a few seconds, and from then on every call does nothing.

>>> with start(enabled=False) as run:
...     run.params({"profile": "mixed+xla"})
...     run.metrics({"quality/long_f1": 0.5})
>>> run.run_id is None
True
"""

from __future__ import annotations

import contextlib
import getpass
import importlib.metadata
import importlib.util
import json
import logging
import math
import os
import platform
import posixpath
import re
import shlex
import shutil
import sqlite3
import subprocess
import tempfile
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

log = logging.getLogger(__name__)

DEFAULT_URI = "sqlite:///mlflow.db"
DEFAULT_EXPERIMENT = "nq"

PREPARE_S = 120.0
"""How long importing MLflow and creating a database may take."""
CALL_S = 6.0
"""How long any other call may take."""
UPLOAD_S = 600.0
"""How long the artifacts of one call may take."""
LAST_S = 1.0
"""How long to wait for the end of what is lost or does not matter much."""
SAMPLING_S = 3.0
"""Seconds from one sample of the system metrics to the next."""

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

COLOURS = (
    *("#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f"),
    *("#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#bab0ac"),
)
"""Colours that can be told apart, also beside each other (Tableau 10)."""
_COLOUR_SEED = 16  # gives the eight profiles eight colours

_NAME_LIMIT = 250  # MLflow's limits, in characters
_PARAM_LIMIT = 6000
_TAG_LIMIT = 8000
_DIGEST_LIMIT = 12  # MLflow would take 36, but then the table of runs shows little else
_DATASET_LIMIT = 500
_BATCH = 100

_importing = threading.Lock()


# ---------------------------------------------------------------------------- the public part


@contextlib.contextmanager
def start(
    uri: str | None = None,
    experiment: str | None = None,
    name: str | None = None,
    *,
    enabled: bool = True,
    profile: str | None = None,
    source: str = "nq.answer",
    tags: Mapping[str, Any] | None = None,
    system_metrics: bool = True,
) -> Iterator[Run]:
    """One run of the tracking store, open for the length of a ``with`` block.

    It is opened in the background, so that nobody waits for MLflow's import (1 to 3 s) or for a
    slow server before there is something to record.

    The run ends as FINISHED, as FAILED after an exception or :meth:`Run.failed`, or as KILLED
    after an interruption; the exception goes on its way.

    Args:
        uri: Tracking store; by default MLFLOW_TRACKING_URI, then ``sqlite:///mlflow.db``.
        experiment: Its name; by default MLFLOW_EXPERIMENT_NAME, then ``nq``.
        name: Title of the run; MLflow invents one by default.
        enabled: Whether to track at all; if not, MLflow is not even imported.
        profile: Gives the run its colour, the same for the same profile.
        source: The command that the run is of.
        tags: More tags, beside those of the machine and the installed versions.
        system_metrics: Whether to sample processor, memory and GPU, where psutil is installed.
    """
    run = Run(
        uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI,
        experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or DEFAULT_EXPERIMENT,
    )
    try:
        if enabled:
            known = _run_tags(source, profile) | dict(tags or {})
            run._in_background(lambda: run._open(name, known, system_metrics))
        yield run
    except BaseException as error:
        run._ended_by(error)
        raise
    finally:
        run._close()


def attach(
    paths: Iterable[str | os.PathLike[str]], run_id: str, uri: str | None = None
) -> str | None:
    """Copy files into a run that has ended, which stays as it is otherwise.

    Args:
        paths: Files, and folders with all that is in them.
        run_id: MLflow's id of the run.
        uri: Tracking store, as for :func:`start`; it is not made where there is none.

    Returns:
        The line that tells how to see the run; ``None`` where it could not be reached.
    """
    run = Run(uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI, "")
    run._reopen(run_id)
    run.artifacts(paths)
    return None if run._lost else run.how_to_open()


def how_to_open(uri: str, experiment_id: str | None = None, run_id: str | None = None) -> str:
    """The line that tells how to see a run, or the runs of an experiment side by side.

    >>> how_to_open("http://tracking:5000", "1", "ab12")
    'http://tracking:5000/#/experiments/1/runs/ab12?workflowType=machine_learning'
    >>> how_to_open("sqlite:///mlflow.db")  # doctest: +NORMALIZE_WHITESPACE
    'mlflow ui --backend-store-uri sqlite:///mlflow.db
     (then open http://127.0.0.1:5000/#/experiments?workflowType=machine_learning)'
    """
    page = "/#/experiments"
    if experiment_id is not None:
        page += f"/{experiment_id}/runs" + (f"/{run_id}" if run_id else "")
    page += "?workflowType=machine_learning"
    if experiment_id is not None and run_id is None:
        page += "&compareRunsMode=CHART"
    uri = _without_password(uri)
    if _is_http(uri):
        return uri.rstrip("/") + page
    command = f"mlflow ui --backend-store-uri {shlex.quote(uri)}"
    return f"{command} (then open http://127.0.0.1:5000{page})"


def safe_name(name: str) -> str:
    """A name that MLflow takes for a metric, param or tag; most names stay as they are.

    >>> safe_name("long-recall-at-precision>=0.5")
    'long-recall-at-precision-ge-0.5'
    """
    for sign, word in ((">=", "ge"), ("<=", "le"), (">", "gt"), ("<", "lt"), ("@", "at")):
        name = name.replace(sign, f"-{word}-")
    name = re.sub(r"[^\w\-. :/]", "_", name)[:_NAME_LIMIT].lstrip("./")
    # "a//b", "./a" and "../a" would be other names as paths, so MLflow refuses them
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return posixpath.join(*parts) if parts else "_"


def colour(profile: str) -> str:
    """The colour of a profile's runs, whatever the order its parts are named in.

    >>> colour("xla+mixed") == colour("mixed+xla") != colour("baseline")
    True
    """
    key = "+".join(sorted(profile.split("+")))
    return COLOURS[zlib.crc32(key.encode(), _COLOUR_SEED) % len(COLOURS)]


class Run:
    """A tracked run, or none at all: every call is safe to make, and none of them raises.

    Attributes:
        uri: The tracking store as it was asked for.
        experiment: Name of the experiment.
    """

    def __init__(self, uri: str, experiment: str):
        self.uri = uri
        self.experiment = experiment
        self._run_id: str | None = None
        self._experiment_id: str | None = None
        self._opening: threading.Thread | None = None
        self._client: Any = None
        self._monitor: Any = None
        self._lost = False
        self._status = "FINISHED"

    @property
    def run_id(self) -> str | None:
        """MLflow's id; ``None`` where tracking is off or the run could not be started."""
        self._wait_until_open()
        return self._run_id

    @property
    def experiment_id(self) -> str | None:
        """MLflow's id of the experiment; ``None`` likewise."""
        self._wait_until_open()
        return self._experiment_id

    def params(self, values: Mapping[str, Any]) -> None:
        """Settings of the run, as text; each may be given once."""
        self._log("params", "Param", _texts(values, _PARAM_LIMIT))

    def tags(self, values: Mapping[str, Any]) -> None:
        """Paths, versions, the device: what is worth knowing but not worth comparing."""
        self._log("tags", "RunTag", _texts(values, _TAG_LIMIT))

    def metrics(self, values: Mapping[str, Any], step: int = 0) -> None:
        """Figures of the run; those that are None, NaN or infinite are left out."""
        figures = _finite(values)
        if len(figures) < len(values):
            log.debug("MLflow: %d metrics have no value", len(values) - len(figures))
        self._log("metrics", "Metric", figures, int(time.time() * 1000), step)

    def curve(self, name: str, values: Sequence[float], first_step: int = 1) -> None:
        """One figure a step, such as the loss of a training."""
        now = int(time.time() * 1000)
        points = [(safe_name(name), v, now, step) for step, v in enumerate(values, first_step)]
        self._log("metrics", "Metric", [p for p in points if math.isfinite(p[1])])

    def dataset(
        self, name: str, path: str | os.PathLike[str], digest: str, context: str = "evaluation"
    ) -> None:
        """What was read, by name and digest: shown in short, kept in full; nothing is loaded."""
        where = os.fspath(path)
        place = json.dumps({"uri": where if "://" in where else str(Path(where).absolute())})

        def send() -> None:
            from mlflow.entities import Dataset, DatasetInput, InputTag

            entity = Dataset(
                _cut(name, _DATASET_LIMIT),
                digest[:_DIGEST_LIMIT],
                source_type="local",
                source=place,
                profile=json.dumps({"digest": digest}),
            )
            use = InputTag("mlflow.data.context", context)
            self._client.log_inputs(self.run_id, [DatasetInput(entity, [use])])

        self._try("cannot write the dataset", send)

    def artifacts(self, paths: Iterable[str | os.PathLike[str]], folder: str | None = None) -> None:
        """Copy files, and folders with all that is in them, into a folder of the run."""
        items = [Path(path) for path in paths]

        def send() -> None:
            for item in items:
                kind = "log_artifacts" if item.is_dir() else "log_artifact"
                getattr(self._client, kind)(self.run_id, str(item), folder)

        self._try("cannot copy the artifacts", send, UPLOAD_S)

    def failed(self, reason: str) -> None:
        """Let the run end as FAILED, for a reason that its page shows."""
        self._status = "FAILED"
        self.tags({"error": reason})

    def how_to_open(self) -> str | None:
        """The line that tells how to see this run; ``None`` where there is none."""
        return how_to_open(self.uri, self.experiment_id, self.run_id) if self.run_id else None

    # ------------------------------------------------------------------------ inside

    def _in_background(self, action: Callable[[], None]) -> None:
        self._opening = threading.Thread(target=action, name="mlflow-open", daemon=True)
        self._opening.start()

    def _wait_until_open(self) -> None:
        if self._opening is not None:
            self._opening.join()
            self._opening = None

    def _open(self, name: str | None, tags: Mapping[str, Any], system_metrics: bool) -> None:
        what = f"cannot start a run at {_without_password(self.uri)}"
        self._attempt(what, lambda: _prepare(self.uri), PREPARE_S)
        if not self._lost:
            self._attempt(what, lambda: self._connect(name, tags), _patience())
        if system_metrics and not self._lost:
            self._watch()

    def _reopen(self, run_id: str) -> None:
        def find() -> None:
            from mlflow import MlflowClient

            self._client = MlflowClient(_absolute(self.uri))
            self._experiment_id = self._client.get_run(run_id).info.experiment_id
            self._run_id = run_id

        what = f"cannot find run {run_id} at {_without_password(self.uri)}"
        self._attempt(what, lambda: _prepare(self.uri, create=False), PREPARE_S)
        if not self._lost:
            self._attempt(what, find, _patience())

    def _connect(self, name: str | None, tags: Mapping[str, Any]) -> None:
        from mlflow import MlflowClient

        uri = _absolute(self.uri)
        self._client = MlflowClient(uri)
        self._experiment_id = _experiment_id(self._client, self.experiment, uri)
        texts = dict(_texts(tags, _TAG_LIMIT))
        run = self._client.create_run(self._experiment_id, run_name=name, tags=texts)
        self._run_id = run.info.run_id

    def _watch(self) -> None:
        """Sample the machine in the background; a run without these figures is one as well."""
        wanted = os.environ.get("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true").lower()
        if wanted in ("false", "0") or importlib.util.find_spec("psutil") is None:
            return
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        try:
            monitor = SystemMetricsMonitor(
                self._run_id, sampling_interval=SAMPLING_S, tracking_uri=_absolute(self.uri)
            )
            # MLflow's pages show metrics in the order of their first values: ours come first
            monitor.mlflow_logger._should_flush = lambda: False
            monitor.start()
        except Exception as error:
            log.debug("MLflow: no system metrics: %s", error)
        else:
            self._monitor = monitor

    def _ended_by(self, error: BaseException) -> None:
        code = error.code if isinstance(error, SystemExit) else None
        if isinstance(error, KeyboardInterrupt) or code == 130:
            self._status = "KILLED"
        elif not isinstance(error, SystemExit) or code:
            self.failed(f"{type(error).__name__}: {error}".removesuffix(": "))

    def _close(self) -> None:
        self._wait_until_open()
        if self._monitor is not None:
            _within(LAST_S if self._lost else _patience(), self._monitor.finish)
        if self.run_id is not None:
            self._attempt(
                "cannot close the run",
                lambda: self._client.set_terminated(self.run_id, self._status),
                LAST_S if self._lost else _patience(),
            )

    def _log(self, field: str, kind: str, items: Sequence[tuple[Any, ...]], *more: Any) -> None:
        """Write entities of one kind, each made from an item and what is common to all."""

        def send() -> None:
            import mlflow.entities

            make = getattr(mlflow.entities, kind)
            for begin in range(0, len(items), _BATCH):
                entities = [make(*item, *more) for item in items[begin : begin + _BATCH]]
                self._client.log_batch(self.run_id, **{field: entities})

        self._try(f"cannot write the {field}", send)

    def _try(self, what: str, action: Callable[[], None], seconds: float | None = None) -> None:
        """Do something for a run that is there and in reach; otherwise nothing."""
        if self.run_id is not None and not self._lost:
            self._attempt(what, action, seconds or _patience())

    def _attempt(self, what: str, action: Callable[[], None], seconds: float) -> None:
        """Do something; at the first failure say so, and remember that the store is lost."""
        error = _within(seconds, action)
        if error is not None and not self._lost:
            self._lost = True
            log.warning(
                "MLflow: %s: %s. The command goes on untracked"
                " (--tracking-uri names another store, --no-track silences this)",
                what,
                _reason(error),
            )


# ---------------------------------------------------------------------------- reaching the store


def _import_mlflow() -> None:
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


def _prepare(uri: str, create: bool = True) -> None:
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
    _import_mlflow()


def _database_path(uri: str) -> Path | None:
    """The file of a plain SQLite URI, absolute."""
    path = uri.removeprefix("sqlite:///")
    if path == uri or not path or path.startswith((":memory:", "file:")) or "?" in path:
        return None
    return Path(path).absolute()


def _absolute(uri: str) -> str:
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
    _import_mlflow()
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


def _experiment_id(client: Any, name: str, uri: str) -> str:
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


def _within(seconds: float, action: Callable[[], object]) -> Exception | None:
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


def _patience() -> float:
    """Seconds that a call may take: ours, unless the user has set MLflow's own."""
    key = "MLFLOW_HTTP_REQUEST_TIMEOUT"
    with contextlib.suppress(KeyError, ValueError):
        if os.environ[key] != ENVIRONMENT[key]:
            tries = 1 + int(os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"])
            return float(os.environ[key]) * tries
    return CALL_S


def _reason(error: BaseException) -> str:
    """The deepest cause in one line: MLflow wraps it four times over."""
    chain = [error]
    while (deeper := chain[-1].__cause__ or chain[-1].__context__) and deeper not in chain:
        chain.append(deeper)
    told = next((e for e in reversed(chain) if not isinstance(e, LookupError)), error)
    line = (str(told).strip() or type(told).__name__).splitlines()[0]
    return _cut(_without_password(line), 300).rstrip(".")


def _without_password(text: str) -> str:
    return re.sub(r"//[^/@\s]+@", "//***@", text)


def _is_http(uri: str) -> bool:
    return urlsplit(uri).scheme in ("http", "https")


# ---------------------------------------------------------------------------- what is written


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _texts(values: Mapping[str, Any], limit: int) -> list[tuple[str, str]]:
    return [(safe_name(key), _cut(str(value), limit)) for key, value in values.items()]


def _finite(values: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The values that are numbers, under names that MLflow takes."""
    figures = []
    for key, value in values.items():
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if math.isfinite(figure := float(value)):
                figures.append((safe_name(key), figure))
    return figures


def _run_tags(source: str, profile: str | None) -> dict[str, str]:
    """What every run says about itself: command, colour, code, machine and versions."""
    tags = {
        "mlflow.source.name": source,
        "mlflow.source.type": "LOCAL",
        "host": platform.node(),
        "version.python": platform.python_version(),
    } | _versions()
    with contextlib.suppress(Exception):  # a user without a name, as in some containers
        tags["mlflow.user"] = getpass.getuser()
    if profile:
        tags["mlflow.runColor"] = colour(profile)
    if commit := _git_commit():
        tags["git_commit"] = commit
        tags["mlflow.source.git.commit"] = commit.removesuffix("-dirty")
    return tags


def _versions() -> dict[str, str]:
    """Versions of the installed packages that a result may depend on; nothing is imported."""
    versions = {}
    for package in ("tensorflow-cpu", "tensorflow", "keras", "numpy", "apache-beam", "mlflow"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            name = package.removesuffix("-cpu").removeprefix("apache-")
            versions[f"version.{name}"] = importlib.metadata.version(package)
    return versions


def _git_commit() -> str | None:
    """The commit of this code, with "-dirty" after it where files have changed since."""
    here = Path(__file__)
    tracked = _git(here.parent, "ls-files", "--error-unmatch", here.name)
    return tracked and _git(
        here.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"
    )


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
