"""Records each command as one flat MLflow run, lists the recorded runs, saves models for MLflow.

Only ``nq.serving`` imports MLflow too. Recording never fails a command and delays it little: every
call to MLflow runs in a daemon thread and is waited for within a time limit. The first failure
(MLflow is not installed, a server is down or hangs, a database is locked or damaged) is logged as
one warning, and from then on every call does nothing.

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
from concurrent.futures import Future, wait
from pathlib import Path
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

OPEN_S = 120.0
"""Time limit of the import of MLflow and the creation of a database, in seconds."""
CALL_S = 20.0
"""Time limit of a call; SQLite waits as long for the lock of another process."""
UPLOAD_S = 600.0
LAST_S = 2.0
"""Time limit of the end of a run after an interruption or a failure."""
MAX_RUNS = 50_000
"""As many as MLflow returns at once."""
INTERRUPTED = (130, 143)

ENVIRONMENT = {
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # failures are reported here, in one line
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "true",
    "MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL": "3",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
"""MLflow's settings in the environment; a variable that is already set keeps its value."""
VIEW, VIEW_TAG = "nq", "mlflow.sharedViewState.nq"
"""A saved view of an experiment: which columns MLflow's table of runs has, and their order."""
VIEW_STATE = {
    "selectedColumns": [
        f"params.`{PROFILE}`",
        *(f"metrics.`{name}`" for name in (MICRO_F1, PREDICT_S, WINDOWS_PER_S, CHANGED)),
    ],
    "orderByKey": f"metrics.`{WINDOWS_PER_S}`",
    "orderByAsc": False,
}
COLORS = (  # Tableau 10: easy to tell apart
    *("#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f"),
    *("#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#bab0ac"),
)


# --- the tracking store -------------------------------------------------------------------------


def import_mlflow() -> None:
    """Imports the parts of MLflow that a run needs, without its messages on the terminal."""
    extras.require("mlflow")
    for key, value in ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    # MLflow itself uses what SQLAlchemy warns of
    warnings.filterwarnings("ignore", "The ``noload`` loader", DeprecationWarning)
    # MLflow warns of type hints in its own code when it is imported
    warnings.filterwarnings("ignore", ".*Any type hint is inferred as AnyType", UserWarning)
    importlib.import_module("mlflow.store.tracking.sqlalchemy_store")
    for name in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(os.environ["MLFLOW_LOGGING_LEVEL"].upper())


def connect(uri: str, create: bool = True) -> Any:
    """Returns an ``MlflowClient`` of a store; ``create`` allows the creation of a database.

    A database file is examined first: MLflow would add its tables to the database of another
    program, and tries to open a damaged one for minutes.

    Raises:
        Exception: the store cannot be used.
    """
    import_mlflow()
    from mlflow import MlflowClient

    path = database_path(uri)
    if path is not None and visible(str(path)) != str(path):
        raise ValueError(f"MLflow cannot store the path {visible(str(path))}; give another one")
    if path is not None and not path.exists():
        if not create:
            raise FileNotFoundError("there is no database")
        _create_database(path)
    elif path is not None and path.stat().st_size:
        with contextlib.closing(sqlite3.connect(path, timeout=CALL_S / 2)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            connection.execute("BEGIN IMMEDIATE")  # fails if the database is locked
        if tables and not tables & {"experiments", "alembic_version"}:
            raise ValueError(
                f"{path} is the database of another program, with {', '.join(sorted(tables)[:3])}; "
                "give another --tracking-uri"
            )
    return MlflowClient(absolute(uri))


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


def database_path(uri: str) -> Path | None:
    """Returns the absolute path of the file of a SQLite URI, ``None`` for other URIs."""
    path = uri.removeprefix("sqlite:///").partition("?")[0]
    return None if path in ("", uri, ":memory:") else Path(path).absolute()


def absolute(uri: str) -> str:
    """Returns the URI with an absolute path, since MLflow caches stores by their URI."""
    path = database_path(uri)
    return uri if path is None or "?" in uri else f"sqlite:///{path}?timeout={CALL_S:.0f}"


def link(uri: str, experiment: str, experiment_id: str, run_id: str | None = None) -> str:
    """Returns the link or command that shows a run, or the table of an experiment's runs.

    >>> link("http://me:secret@tracking:5000", "nq", "1", "ab12")
    'http://***@tracking:5000/#/experiments/1/runs/ab12?workflowType=machine_learning'
    >>> link("sqlite:///mlflow.db", "speed", "1")
    'nq ui --experiment speed'
    """
    uri, page = without_password(uri), _page(experiment_id, run_id)
    if is_server(uri):
        return uri.rstrip("/") + page
    store = ["--tracking-uri", uri] if uri != DEFAULT_URI else []
    name = ["--experiment", experiment] if experiment != DEFAULT_EXPERIMENT else []
    command = shlex.join(["nq", "ui", *store, *name])
    return f"{command} (then open http://127.0.0.1:5000{page})" if run_id else command


def _page(experiment_id: str, run_id: str | None = None) -> str:
    """Returns the page of a run or of the table of runs; without the type, MLflow opens traces."""
    run = f"/{run_id}" if run_id else ""
    page = f"/#/experiments/{experiment_id}/runs{run}?workflowType=machine_learning"
    return page if run_id else f"{page}&viewStateShareKey={VIEW}"


def is_server(uri: str) -> bool:
    """Returns whether a URI is that of a tracking server, not of a database."""
    return uri.startswith(("http://", "https://"))


def reason(error: BaseException) -> str:
    """Returns the deepest cause in one line, since MLflow wraps it several times."""
    while (cause := error.__cause__ or error.__context__) and not isinstance(cause, LookupError):
        error = cause
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return truncate(without_password(line), 300).rstrip(".")


def in_thread(function: Callable[[], Any]) -> Future[Any]:
    """Returns the result of a function that begins to run in a daemon thread.

    MLflow's asynchronous logging does not replace this: it waits for its threads when Python
    exits, and it is for metrics, params and tags only.
    """
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=work, name="nq-tracking", daemon=True).start()
    return future


def result_within(limit_s: float, future: Future[Any]) -> Any:
    """Returns the result of a future, or raises its error, or a TimeoutError."""
    wait([future], limit_s)
    if not future.done():
        raise TimeoutError(f"no answer within {limit_s} s")
    return future.result()


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


def _store(uri: str | None, experiment: str | None) -> tuple[str, str]:
    """Returns the URI of the store and the name of the experiment."""
    return (
        uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI,
        experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or DEFAULT_EXPERIMENT,
    )


class Run:
    """Records a ``with`` block as one run. No method raises.

    The run is opened by ``open`` in the background, or by the first call that needs it. It ends as
    FINISHED, as FAILED after an exception, or as KILLED after an interruption; after an exception
    or an interruption nothing is opened, so that a command that cannot start leaves no run, and
    after an interruption the end waits for little.

    Args:
        uri: tracking store; by default MLFLOW_TRACKING_URI, then ``sqlite:///mlflow.db``.
        experiment: by default MLFLOW_EXPERIMENT_NAME, then ``nq``.
        enabled: whether to record at all; if not, MLflow is not even imported.
        profile: gives the run its color.
        system_metrics: whether to sample processor, memory and GPU, if psutil is installed.

    Attributes:
        available: whether recording is on and has not failed.
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
        self.uri, self.experiment = _store(uri, experiment)
        self.name, self.available, self.status = name and visible(name), enabled, "FINISHED"
        self._profile, self._source, self._system_metrics = profile, source, system_metrics
        self._unfinished: Path | None = None
        self._started = time.time()
        self._ended: float | None = None
        self._monitor: Any = None
        self._opening: Future[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        code = error.code if isinstance(error, SystemExit) else error and 1
        if isinstance(error, KeyboardInterrupt) or code in INTERRUPTED:
            self.status = "KILLED"
        elif code:
            self.status = "FAILED"
            self.tags({"error": f"{type(error).__name__}: {error}".removesuffix(": ")})

        def end(client: Any, info: Any) -> None:
            ended_ms = None if self._ended is None else int(1000 * self._ended)
            client.set_terminated(info.run_id, self.status, ended_ms)
            if self._monitor:
                self._monitor.finish()

        if self.available and self.status != "KILLED":
            self._call("close the run", end)
        else:
            self.available = False
            with contextlib.suppress(Exception):
                client, info = self._opening.result(LAST_S)  # type: ignore[union-attr]
                result_within(LAST_S, in_thread(lambda: end(client, info)))
        if self._unfinished and self.status == "FINISHED":
            self._unfinished.unlink(missing_ok=True)

    def open(self, unfinished: Path | None = None, started: float | None = None) -> None:
        """Begins to open the run in the background; later calls do nothing.

        Args:
            unfinished: file that identifies the run until it is finished, so that a later start
                with the same file continues it.
            started: when the work began, in seconds since 1970; by default when the block began.
                A run that is continued keeps its start.
        """
        if self.available and self._opening is None:
            self._unfinished, self._started = unfinished, started or self._started
            self._opening = in_thread(self._open)

    def _open(self) -> tuple[Any, Any]:
        """Returns MLflow's client and the info of the run.

        The system is monitored here because ``mlflow.start_run(log_system_metrics=True)`` would
        record only in the store of the whole process, which is not changed.
        """
        client = connect(self.uri)
        info = result_within(CALL_S, in_thread(lambda: self._begin(client)))
        with contextlib.suppress(Exception):  # psutil may be missing
            from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
            from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

            if self._system_metrics and MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.get():
                monitor = SystemMetricsMonitor(info.run_id, tracking_uri=absolute(self.uri))
                monitor.start()
                self._monitor = monitor
        return client, info

    def _begin(self, client: Any) -> Any:
        """Creates the run, or continues the one that a file identifies; returns its info."""
        from mlflow.exceptions import MlflowException

        if not self.available:
            raise InterruptedError("the command has ended meanwhile")
        experiment = client.get_experiment_by_name(self.experiment)
        if experiment is None:
            database = database_path(self.uri)
            folder = re.sub(r"^\.|[^\w\-. :]", "_", self.experiment)  # one below mlruns
            location = database and str(database.parent / "mlruns" / folder)
            try:
                client.create_experiment(self.experiment, artifact_location=location)
            except MlflowException:
                if client.get_experiment_by_name(self.experiment) is None:
                    raise  # otherwise another process was first
            experiment = client.get_experiment_by_name(self.experiment)
            client.set_experiment_tag(experiment.experiment_id, VIEW_TAG, json.dumps(VIEW_STATE))
        experiment_id = experiment.experiment_id
        if self._unfinished:
            with contextlib.suppress(FileNotFoundError, UnicodeDecodeError, MlflowException):
                run = client.get_run(self._unfinished.read_text(encoding="utf-8").strip())
                info = run.info
                if (info.experiment_id, info.lifecycle_stage) == (experiment_id, "active"):
                    client.update_run(info.run_id, status="RUNNING")
                    if "error" in run.data.tags:
                        client.delete_tag(info.run_id, "error")
                    return info
        tags, started_ms = _run_tags(self._source, self._profile), int(1000 * self._started)
        info = client.create_run(experiment_id, started_ms, tags, run_name=self.name).info
        if self._unfinished:
            self._unfinished.parent.mkdir(parents=True, exist_ok=True)
            self._unfinished.write_text(f"{info.run_id}\n", encoding="utf-8")
        return info

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run, which is opened first; ``None`` if it is not recorded."""
        run_id: str | None = self._call("open a run", lambda client, info: info.run_id)
        return run_id

    def links(self) -> tuple[str | None, str | None]:
        """Returns the links or commands that show this run, and all runs of its experiment."""
        info = self._call("open a run", lambda client, info: info)
        if info is None:
            return None, None
        place = self.uri, self.experiment, info.experiment_id
        return link(*place, info.run_id), link(*place)

    def params(self, values: Mapping[str, Any]) -> None:
        """Records settings as text; each may be given once."""
        self._log("params", "Param", [(key, str(value)) for key, value in values.items()])

    def tags(self, values: Mapping[str, Any]) -> None:
        """Records what is not compared between runs: paths, versions, the device."""
        self._log("tags", "RunTag", [(key, str(value)) for key, value in values.items()])

    def metrics(self, values: Mapping[str, Any], step: int = 0) -> None:
        """Records the values that are finite numbers."""
        self._log("metrics", "Metric", _points((*item, step) for item in values.items()))

    def curve(self, name: str, values: Sequence[float], first_step: int = 1) -> None:
        """Records one number for each step, such as the loss of a training."""
        points = _points((name, value, step) for step, value in enumerate(values, first_step))
        self._log("metrics", "Metric", points)

    def _log(self, field: str, entity: str, items: Sequence[tuple[Any, ...]]) -> None:
        def write(client: Any, info: Any) -> None:
            from mlflow import entities

            texts = ([visible(x, True) if isinstance(x, str) else x for x in i] for i in items)
            values = [getattr(entities, entity)(*item) for item in texts]
            client.log_batch(info.run_id, **{field: values})

        self._call(f"write the {field}", write)

    def last_step(self, name: str) -> int:
        """Returns the last recorded step of a curve, 0 if there is none."""
        history = self._call(
            "read a curve", lambda c, info: c.get_metric_history(info.run_id, name)
        )
        return max((point.step for point in history or []), default=0)

    def dataset(self, name: str, path: str | os.PathLike[str], digest: str) -> None:
        """Records name, path and digest of a dataset, which is not read."""
        uri = os.fspath(path) if "://" in os.fspath(path) else str(Path(path).absolute())

        def write(client: Any, info: Any) -> None:
            from mlflow.entities import Dataset, DatasetInput, InputTag

            source, profile = json.dumps({"uri": uri}), json.dumps({"digest": digest})
            # MLflow's table of runs shows the digest, so it is short there
            shown = truncate(visible(name), 500)
            dataset = Dataset(shown, digest[:12], "local", source, profile=profile)
            tag = InputTag("mlflow.data.context", "evaluation")
            client.log_inputs(info.run_id, [DatasetInput(dataset, [tag])])

        self._call("write the dataset", write)

    def artifacts(self, paths: Iterable[str | os.PathLike[str]], folder: str | None = None) -> None:
        """Copies files, and folders with their content, into a folder of the run."""

        def copy(client: Any, info: Any) -> None:
            for path in map(Path, paths):
                method = client.log_artifacts if path.is_dir() else client.log_artifact
                method(info.run_id, str(path), folder)

        self._call("copy the artifacts", copy, UPLOAD_S)

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

        def write(client: Any, info: Any) -> str:
            from mlflow.entities import LoggedModelOutput, LoggedModelStatus

            with tempfile.TemporaryDirectory(prefix="nq-mlflow-") as temporary:
                models, folder = copy(Path(temporary)), Path(temporary) / "mlflow"
                logged = client.create_logged_model(info.experiment_id, "nq", info.run_id)
                save_model(folder, models, profile, extra, logged)
                client.log_model_artifacts(logged.model_id, str(folder))
            client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
            client.log_outputs(info.run_id, [LoggedModelOutput(logged.model_id, step=0)])
            return f"models:/{logged.model_id}"

        uri: str | None = self._call("log the model", write, UPLOAD_S)
        if uri:
            log.info("the run has its model: mlflow models serve -m %s --env-manager local", uri)
        return uri

    def table(self, columns: Mapping[str, Sequence[Any]], file: str) -> None:
        """Records a table, which MLflow shows with the run and beside those of other runs."""
        self._call("write a table", lambda c, info: c.log_table(info.run_id, dict(columns), file))

    def end_at(self, moment: float) -> None:
        """Sets the end of the run, in seconds since 1970, before which its work has ended."""
        self._ended = moment

    def _call(
        self, action: str, function: Callable[[Any, Any], Any], limit_s: float | None = None
    ) -> Any:
        """Returns ``function(client, info)``; ``None`` if it or an earlier call has failed."""
        if self.status == "FINISHED":
            self.open()
        if not (self.available and self._opening):
            return None
        step = f"open a run at {without_password(self.uri)}"
        try:
            client, info = result_within(OPEN_S, self._opening)
            step = action
            return result_within(limit_s or CALL_S, in_thread(lambda: function(client, info)))
        except Exception as error:
            message = "MLflow: cannot %s: %s; the run is not recorded (--no-track turns this off)"
            log.warning(message, step, reason(error))
            self.available = False
            return None


def _points(values: Iterable[tuple[str, Any, int]]) -> list[tuple[str, float, int, int]]:
    """Returns name, value, time and step of the values that are finite numbers."""
    now = int(time.time() * 1000)
    return [
        (name, float(value), now, step)
        for name, value, step in values
        if isinstance(value, numbers.Real) and math.isfinite(value)
    ]


# --- recorded runs ------------------------------------------------------------------------------


def search_runs(
    uri: str | None = None, experiment: str | None = None
) -> tuple[str, list[Any], str]:
    """Returns the name of an experiment, its runs as MLflow's entities, and how to see them.

    Takes the arguments of ``Run``; the newest run comes first.

    Raises:
        ValueError: the store cannot be read, or has no such experiment.
    """
    uri, name = _store(uri, experiment)
    experiment_id, runs = _read(
        uri, name, lambda client, own: client.search_runs([own], max_results=MAX_RUNS)
    )
    return name, list(runs), link(uri, name, experiment_id)


def experiment_page(uri: str | None = None, experiment: str | None = None) -> tuple[str, str]:
    """Returns the URI of a store, and the page of an experiment's runs on its server.

    Takes the arguments and raises the errors of ``search_runs``. The experiment gets its saved
    view if it has none.
    """
    uri, name = _store(uri, experiment)

    def add_view(client: Any, experiment_id: str) -> None:
        if VIEW_TAG not in client.get_experiment(experiment_id).tags:
            client.set_experiment_tag(experiment_id, VIEW_TAG, json.dumps(VIEW_STATE))

    return uri, _page(_read(uri, name, add_view)[0])


def _read(uri: str, name: str, function: Callable[[Any, str], Any]) -> tuple[str, Any]:
    """Returns the id of an experiment, and the result of ``function(client, id)``."""
    where = without_password(uri)

    def read() -> tuple[str, Any]:
        client = connect(uri, create=False)
        entity = client.get_experiment_by_name(name)
        if entity is None:
            names = ", ".join(sorted(e.name for e in client.search_experiments())) or "none"
            raise LookupError(
                f"no experiment {name!r} in {where}, which has {names}: give one of them as "
                "--experiment"
            )
        return entity.experiment_id, function(client, entity.experiment_id)

    try:
        experiment_id, result = result_within(OPEN_S, in_thread(read))
    except LookupError as error:
        raise ValueError(error.args[0]) from error
    except Exception as error:
        raise ValueError(
            f"cannot read the runs in {where}: {reason(error)}; give the store of your runs as "
            "--tracking-uri"
        ) from error
    return experiment_id, result


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
