"""Records each command as one flat MLflow run, and saves models for MLflow.

Only ``nq.serving`` imports MLflow too. Recording never fails a command and delays it little: a
daemon thread works through the calls of a run in their order, and the command waits for it only
for a result and at the end, within one time limit. The first failure (MLflow is not installed, a
server is down or hangs, a database is locked or damaged) is logged as one warning, and from then on
every call does nothing.

>>> with Run(enabled=False) as run:
...     run.metrics({"quality/long_f1": 0.5})
>>> run.run_id is None
True
"""

from __future__ import annotations

import contextlib
import getpass
import importlib
import importlib.metadata
import json
import logging
import math
import numbers
import os
import platform
import re
import shlex
import sqlite3
import subprocess
import tempfile
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

from nq import extras
from nq.text import truncate, visible, without_password

log = logging.getLogger(__name__)

DEFAULT_URI, DEFAULT_EXPERIMENT = "sqlite:///mlflow.db", "nq"
PROFILE, INSTANCES, THREADS, RUNNER = "profile", "instances", "threads", "runner"
"""Params that all commands record under the same names; the next lines have metrics and tags."""
MICRO_F1, PREDICT_S = "micro_f1", "predict_s"
"""Without a prefix, so that they are the first in MLflow's charts and tables."""
WINDOWS_PER_S = "speed/windows_per_s"
CHANGED, PEAK_MB = "parity/changed_answers", "memory/peak_mb"
SPEED_COMPARABLE, MACHINE = "speed_comparable", "machine"

LIMIT_S = 300.0
"""Time limit of a wait for the thread: for a result, or for all remaining calls at the end."""
LAST_S = 2.0
"""Time limit of the end of a run after an interruption or a failure."""
INTERRUPTED = (130, 143)

ENVIRONMENT = {
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # failures are reported here, in one line
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "true",
    "MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL": "3",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",  # seconds in which a server sends nothing
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
"""MLflow's settings in the environment; a variable that is already set keeps its value."""
PAGE = "/#/experiments/{}/runs{}?workflowType=machine_learning"
"""Page of a run, or of the table of runs; without the type, MLflow opens that of traces."""
COLORS = (  # Tableau 10: easy to tell apart
    *("#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f"),
    *("#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#bab0ac"),
)


# --- the tracking store -------------------------------------------------------------------------


def import_mlflow() -> None:
    """Imports MLflow without its messages on the terminal."""
    extras.require("mlflow")
    for key, value in ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    # MLflow itself uses what SQLAlchemy warns of
    warnings.filterwarnings("ignore", "The ``noload`` loader", DeprecationWarning)
    # MLflow warns of type hints in its own code when it is imported
    warnings.filterwarnings("ignore", ".*Any type hint is inferred as AnyType", UserWarning)
    importlib.import_module("mlflow")
    for name in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(os.environ["MLFLOW_LOGGING_LEVEL"].upper())


def store(uri: str | None, experiment: str | None) -> tuple[str, str]:
    """Returns the URI of the tracking store and the name of the experiment, with the defaults."""
    return (
        uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI,
        experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or DEFAULT_EXPERIMENT,
    )


def connect(uri: str) -> Any:
    """Returns an ``MlflowClient`` of a store; a database is created if there is none.

    Raises:
        Exception: the store cannot be used.
    """
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
    """Returns the absolute path of the file of a SQLite URI, ``None`` for other URIs."""
    path = uri.removeprefix("sqlite:///").partition("?")[0]
    return None if path in ("", uri, ":memory:") else Path(path).absolute()


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

    if visible(str(path)) != str(path):
        raise ValueError(f"MLflow cannot store the path {visible(str(path))}; give another one")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".mlflow-", dir=path.parent) as folder:
        new = Path(folder, path.name)
        SqlAlchemyStore(f"sqlite:///{new}", str(path.parent / "mlruns")).engine.dispose()
        if not path.exists():
            new.rename(path)


def run_link(uri: str, experiment: str, experiment_id: str, run_id: str) -> str:
    """Returns the link that shows a run; of a database the command, and the link in its server.

    >>> run_link("http://me:secret@tracking:5000", "nq", "1", "ab12")
    'http://***@tracking:5000/#/experiments/1/runs/ab12?workflowType=machine_learning'
    >>> run_link("sqlite:///mlflow.db", "speed", "1", "ab12").partition(" (")[0]
    'nq ui --experiment speed'
    """
    uri, page = without_password(uri), PAGE.format(experiment_id, f"/{run_id}")
    if uri.startswith("http"):
        return uri.rstrip("/") + page
    store = ["--tracking-uri", uri] if uri != DEFAULT_URI else []
    name = ["--experiment", experiment] if experiment != DEFAULT_EXPERIMENT else []
    command = shlex.join(["nq", "ui", *store, *name])
    return f"{command} (then open http://127.0.0.1:5000{page})"


def reason(error: BaseException) -> str:
    """Returns the deepest cause in one line, since MLflow wraps it several times."""
    while (cause := error.__cause__ or error.__context__) and not isinstance(cause, LookupError):
        error = cause
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return truncate(without_password(line), 300).rstrip(".")


# --- a run --------------------------------------------------------------------------------------


def _run_tags(source: str, profile: str | None) -> dict[str, str]:
    """Returns the tags of every run: command, color, commit, machine, user and versions."""
    tags = {"mlflow.source.name": source, "mlflow.source.type": "LOCAL"}
    tags |= {"host": platform.node(), "version.python": platform.python_version()}
    for package in ("tensorflow-cpu", "tensorflow", "keras", "numpy", "apache-beam", "mlflow"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            name = package.removesuffix("-cpu").removeprefix("apache-")
            tags[f"version.{name}"] = importlib.metadata.version(package)
    with contextlib.suppress(Exception):  # a user without a name, as in some containers
        tags["mlflow.user"] = visible(getpass.getuser())
    if profile:
        tags["mlflow.runColor"] = color(profile)

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True, timeout=5)

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        git("ls-files", "--error-unmatch", Path(__file__).name)  # fails for an installed package
        commit = git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*").strip()
        tags |= {"git_commit": commit, "mlflow.source.git.commit": commit.removesuffix("-dirty")}
    return tags


def color(profile: str) -> str:
    """Returns the color of a profile's runs; the order of the profile's parts does not matter.

    >>> color("xla+mixed") == color("mixed+xla") != color("baseline")
    True
    """
    key = "+".join(sorted(profile.split("+")))
    seed = 16  # gives the eight profiles eight colors
    return COLORS[zlib.crc32(key.encode(), seed) % len(COLORS)]


class Run:
    """Records a ``with`` block as one run. No method raises.

    The run is opened by ``open``, or by the first call that needs it. It ends as FINISHED, as
    FAILED after an exception, or as KILLED after an interruption; after an exception or an
    interruption nothing is opened, so that a command that cannot start leaves no run, and after an
    interruption the remaining calls are left out and the end waits for little.

    Args:
        uri: tracking store; by default MLFLOW_TRACKING_URI, then ``sqlite:///mlflow.db``.
        experiment: by default MLFLOW_EXPERIMENT_NAME, then ``nq``.
        enabled: whether to record at all; if not, MLflow is not even imported.
        profile: gives the run its color.
        system_metrics: whether to sample processor, memory and GPU, if psutil is installed.

    Attributes:
        available: whether recording is on and has not failed; final when the block has ended.
        ended: when the work ended, in seconds since 1970; by default when the block ends.
    """

    def __init__(
        self,
        uri: str | None = None,
        experiment: str | None = None,
        name: str | None = None,
        *,
        enabled: bool = True,
        profile: str | None = None,
        source: str = "nq.answer",
        system_metrics: bool = True,
    ) -> None:
        self.uri, self.experiment = store(uri, experiment)
        self.name, self.available, self.status = name and visible(name), enabled, "FINISHED"
        self.ended: float | None = None
        self._profile, self._source, self._system_metrics = profile, source, system_metrics
        self._started = time.time()
        self._unfinished: Path | None = None
        self._calls = SimpleQueue[tuple[str, Callable[[], Any], Future[Any]] | None]()
        self._thread: threading.Thread | None = None
        self._opening: Future[Any] | None = None
        self._action = ""  # of the thread, as all that follows
        self._client: Any = None
        self._info: Any = None
        self._monitor: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        code = error.code if isinstance(error, SystemExit) else error and 1
        if isinstance(error, KeyboardInterrupt) or code in INTERRUPTED:
            self.status, self.available = "KILLED", False
        elif code:
            self.status = "FAILED"
            self.tags({"error": f"{type(error).__name__}: {error}".removesuffix(": ")})
        self.open()
        if self._thread is None:
            return
        self._calls.put(None)
        self._thread.join(LIMIT_S if self.available else LAST_S)
        if self._thread.is_alive():
            self._fail(TimeoutError(f"no answer within {LIMIT_S} s"))
        if self._unfinished and self.status == "FINISHED":
            self._unfinished.unlink(missing_ok=True)

    def open(self, unfinished: Path | None = None, started: float | None = None) -> None:
        """Begins to open the run; later calls, and those after an error, do nothing.

        Args:
            unfinished: file that identifies the run until it is finished, so that a later start
                with the same file continues it.
            started: when the work began, in seconds since 1970; by default when the block began.
                A run that is continued keeps its start.
        """
        if self.available and self._thread is None and self.status == "FINISHED":
            self._unfinished, self._started = unfinished, started or self._started
            self._thread = threading.Thread(target=self._work, name="nq-tracking", daemon=True)
            self._thread.start()
            self._opening = self._call(f"open a run at {without_password(self.uri)}", self._open)

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run, which is opened first; ``None`` if it is not recorded."""
        self.open()
        run_id: str | None = self._result(self._opening)
        return run_id

    @property
    def how_to_open(self) -> str | None:
        """The link or command that shows this run; ``None`` if it is not recorded."""
        run_id = self.run_id
        return run_id and run_link(self.uri, self.experiment, self._info.experiment_id, run_id)

    # --- the thread and its calls

    def _work(self) -> None:
        """Works through the calls, and ends the run, also after a failure.

        MLflow's asynchronous logging does not replace this: it waits for its threads when Python
        exits, and it is for metrics, params and tags only.
        """
        for action, function, result in iter(self._calls.get, None):
            result.set_result(self._attempt(action, function) if self.available else None)
        if self._info is not None:
            self._attempt("close the run", self._close)

    def _attempt(self, action: str, function: Callable[[], Any]) -> Any:
        """Returns the result of a function, ``None`` if it fails."""
        self._action = action
        try:
            return function()
        except Exception as error:
            self._fail(error)
            return None

    def _fail(self, error: Exception) -> None:
        """Turns recording off and tells why, unless it is off."""
        if self.available:
            self.available = False
            message = "MLflow: cannot %s: %s; the run is not recorded (--no-track turns this off)"
            log.warning(message, visible(self._action), reason(error))

    def _call(self, action: str, function: Callable[[], Any]) -> Future[Any] | None:
        """Leaves a call to the thread, after that which opens the run; returns its result."""
        self.open()
        if self._thread is None or not self.available:
            return None
        result = Future[Any]()
        self._calls.put((action, function, result))
        return result

    def _result(self, future: Future[Any] | None) -> Any:
        """Returns the result of a call, for which it waits; ``None`` if recording is off."""
        if future is None or not self.available:
            return None
        try:
            return future.result(LIMIT_S)
        except TimeoutError:
            self._fail(TimeoutError(f"no answer within {LIMIT_S} s"))
            return None

    def _open(self) -> str | None:
        """Creates the run, or continues an unfinished one; returns its id.

        The system is monitored here because ``mlflow.start_run(log_system_metrics=True)`` would
        record only in the store of the whole process, which is not changed.
        """
        self._client = connect(self.uri)
        if not self.available:
            return None  # the command has ended meanwhile
        experiment_id = self._experiment_id()
        self._info = self._continued(experiment_id) or self._created(experiment_id)
        with contextlib.suppress(Exception):  # psutil may be missing
            from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
            from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

            if self._system_metrics and MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.get():
                uri = self._client.tracking_uri
                monitor = SystemMetricsMonitor(self._info.run_id, tracking_uri=uri)
                monitor.start()
                self._monitor = monitor
        return str(self._info.run_id)

    def _experiment_id(self) -> str:
        """Returns the id of the experiment, which is created if there is none."""
        from mlflow.exceptions import MlflowException

        if experiment := self._client.get_experiment_by_name(self.experiment):
            return str(experiment.experiment_id)
        database = database_path(self.uri)
        folder = re.sub(r"^\.|[^\w\-. :]", "_", self.experiment)  # one below mlruns
        location = database and str(database.parent / "mlruns" / folder)
        try:
            return str(self._client.create_experiment(self.experiment, location))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            return self._experiment_id()  # another process was first

    def _continued(self, experiment_id: str) -> Any:
        """Returns the info of the run that the file identifies, ``None`` if there is none."""
        from mlflow.exceptions import MlflowException

        if self._unfinished is None:
            return None
        with contextlib.suppress(FileNotFoundError, UnicodeDecodeError, MlflowException):
            run = self._client.get_run(self._unfinished.read_text(encoding="utf-8").strip())
            if (run.info.experiment_id, run.info.lifecycle_stage) == (experiment_id, "active"):
                self._client.update_run(run.info.run_id, status="RUNNING")
                if "error" in run.data.tags:
                    self._client.delete_tag(run.info.run_id, "error")
                return run.info
        return None

    def _created(self, experiment_id: str) -> Any:
        """Creates the run and the file that identifies it; returns its info."""
        tags, started_ms = _run_tags(self._source, self._profile), int(1000 * self._started)
        info = self._client.create_run(experiment_id, started_ms, tags, run_name=self.name).info
        if self._unfinished:
            self._unfinished.parent.mkdir(parents=True, exist_ok=True)
            self._unfinished.write_text(f"{info.run_id}\n", encoding="utf-8")
        return info

    def _close(self) -> None:
        ended_ms = None if self.ended is None else int(1000 * self.ended)
        self._client.set_terminated(self._info.run_id, self.status, ended_ms)
        if self._monitor:
            self._monitor.finish()

    # --- what is recorded

    def params(self, values: Mapping[str, Any]) -> None:
        """Records settings as text; each may be given once."""
        self._log("params", "Param", [(key, str(value)) for key, value in values.items()])

    def tags(self, values: Mapping[str, Any]) -> None:
        """Records what is not compared between runs: paths, versions, the device."""
        self._log("tags", "RunTag", [(key, str(value)) for key, value in values.items()])

    def metrics(self, values: Mapping[str, Any], step: int = 0) -> None:
        """Records the values that are finite numbers."""
        self._points((name, value, step) for name, value in values.items())

    def curve(self, name: str, values: Sequence[float], first_step: int = 1) -> None:
        """Records one number for each step, such as the loss of a training."""
        self._points((name, value, step) for step, value in enumerate(values, first_step))

    def _points(self, points: Iterable[tuple[str, Any, int]]) -> None:
        now, number = int(time.time() * 1000), numbers.Real
        finite = (one for one in points if isinstance(one[1], number) and math.isfinite(one[1]))
        self._log("metrics", "Metric", [(name, float(x), now, step) for name, x, step in finite])

    def _log(self, field: str, entity: str, items: Iterable[tuple[Any, ...]]) -> None:
        texts = [[visible(x, True) if isinstance(x, str) else x for x in item] for item in items]

        def write() -> None:
            from mlflow import entities

            values = [getattr(entities, entity)(*item) for item in texts]
            self._client.log_batch(self._info.run_id, **{field: values})

        self._call(f"write the {field}", write)

    def last_step(self, name: str) -> int:
        """Returns the last recorded step of a curve, 0 if there is none."""

        def read() -> int:
            history = self._client.get_metric_history(self._info.run_id, name)
            return max((point.step for point in history), default=0)

        return self._result(self._call("read a curve", read)) or 0

    def dataset(self, name: str, path: str | os.PathLike[str], digest: str) -> None:
        """Records name, path and digest of a dataset, which is not read."""
        uri = os.fspath(path) if "://" in os.fspath(path) else str(Path(path).absolute())

        def write() -> None:
            from mlflow.entities import Dataset, DatasetInput, InputTag

            source, profile = json.dumps({"uri": uri}), json.dumps({"digest": digest})
            # MLflow's table of runs shows the digest, so it is short there
            shown = truncate(visible(name), 500)
            dataset = Dataset(shown, digest[:12], "local", source, profile=profile)
            tag = InputTag("mlflow.data.context", "evaluation")
            self._client.log_inputs(self._info.run_id, [DatasetInput(dataset, [tag])])

        self._call("write the dataset", write)

    def artifacts(self, paths: Iterable[str | os.PathLike[str]], folder: str | None = None) -> None:
        """Copies files, and folders with their content, into a folder of the run."""
        sources = [*map(Path, paths)]

        def copy() -> None:
            for path in sources:
                method = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
                method(self._info.run_id, str(path), folder)

        self._call("copy the artifacts", copy)

    def log_model(
        self,
        copy: Callable[[Path], Mapping[str, Path]],
        profile: str | None = None,
        extra: str | None = None,
    ) -> str | None:
        """Logs a model with the run; returns its URI, ``None`` if it is not recorded.

        ``mlflow.pyfunc.log_model`` would log to the store of the whole process, which is not
        changed. ``copy`` makes the models of ``save_model`` in a temporary folder; the others are
        its arguments.
        """

        def write() -> str:
            from mlflow.entities import LoggedModelOutput, LoggedModelStatus

            client, info = self._client, self._info
            with tempfile.TemporaryDirectory(prefix="nq-mlflow-") as temporary:
                models, folder = copy(Path(temporary)), Path(temporary) / "mlflow"
                logged = client.create_logged_model(info.experiment_id, "nq", info.run_id)
                save_model(folder, models, profile, extra, logged)
                client.log_model_artifacts(logged.model_id, str(folder))
            client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
            client.log_outputs(info.run_id, [LoggedModelOutput(logged.model_id, step=0)])
            return f"models:/{logged.model_id}"

        uri: str | None = self._result(self._call("log the model", write))
        if uri:
            log.info("the run has its model: mlflow models serve -m %s --env-manager local", uri)
        return uri

    def table(self, columns: Mapping[str, Sequence[Any]], file: str) -> None:
        """Records a table, which MLflow shows with the run and beside those of other runs."""
        values = dict(columns)
        self._call("write a table", lambda: self._client.log_table(self._info.run_id, values, file))


# --- models in MLflow's format ------------------------------------------------------------------

CODE = Path(__file__).parent / "serving" / "mlflow_model.py"
"""The file that defines the model; MLflow copies it and runs the copy when it loads the model."""
EXAMPLE = [
    {
        "question": "when was it automated",
        "page": "The lighthouse was first lit in 1874.\n\nIt was automated in 1986.",
        "top": 3,
    }
]


def save_model(
    folder: Path,
    models: Mapping[str, Path],
    profile: str | None = None,
    extra: str | None = None,
    logged: Any = None,
) -> None:
    """Saves a model as ``mlflow.pyfunc.load_model`` loads it, with its code and requirements.

    Args:
        folder: to make.
        models: folders of ``model`` and, with a second model, ``second_model``.
        profile: ``None`` for the default one.
        extra: extra of the distribution that the profile needs.
        logged: MLflow's entity of a model that belongs to a run.
    """
    import_mlflow()
    from mlflow import pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types.schema import AnyType, ColSpec, DataType, Schema

    # all inputs are optional to MLflow, which would repeat the whole page in its error
    inputs = [ColSpec(DataType.string, name, False) for name in ("question", "page")]
    # not a number, since pandas turns a column of integers with a missing one into floats
    inputs.append(ColSpec(AnyType(), "top", False))
    fields = (
        (DataType.string, ("question", "answer", "document", "yes_no_answer")),
        (DataType.double, ("short_probability", "long_probability")),
        (DataType.long, ("unread_blocks",)),
        (DataType.boolean, ("asks_yes_no",)),
        (AnyType(), ("short_answers", "long_answer", "runners_up", "skipped_documents")),
    )
    outputs = [ColSpec(kind, name, name == "question") for kind, names in fields for name in names]
    about = {}
    if logged is not None:
        location, model_id = logged.artifact_location, logged.model_id
        about = {"artifact_path": location, "run_id": logged.source_run_id}
        about |= {"model_uuid": model_id, "model_id": model_id}
    names = (extras.tensorflow_extra(), "mlflow", extra)
    pyfunc.save_model(
        folder,
        python_model=str(CODE),
        artifacts={name: str(path) for name, path in models.items()},
        model_config={"profile": profile},
        signature=ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs)),
        input_example=EXAMPLE,
        pip_requirements=[extras.requirement(*filter(None, names))],
        mlflow_model=Model(**about),
    )
