"""Records each command as one flat MLflow run.

Recording never fails a command: a daemon thread works through the calls of a run in their order,
and the command waits for it only for a result and at the end, each time at most ``LIMIT_S``
(300 s). The first failure (MLflow is not installed, a server is down or hangs, a database is locked
or damaged) is logged as one warning, and from then on every call does nothing.
"""

import contextlib
import getpass
import hashlib
import json
import logging
import math
import numbers
import os
import platform
import re
import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

from nq import extras
from nq.config import TrackingConfig
from nq.errors import Error
from nq.mlflow_store import (
    DEFAULT_EXPERIMENT,
    DEFAULT_URI,
    connect,
    database_path,
    experiment_name,
    reason,
    store,
)
from nq.text import counted, truncate, visible, without_password

log = logging.getLogger(__name__)

# Params, which all commands record under the same names.
PROFILE, INSTANCES, THREADS, RUNNER = "profile", "instances", "threads", "runner"
# Metrics. They have no slash: MLflow lists names with one in a section above these.
MICRO_F1, PREDICT_S, WINDOWS_PER_S = "micro_f1", "predict_s", "windows_per_s"
QUESTIONS, CHANGED = "questions", "changed_answers"
PEAK_MB, SIZE_MB = "peak_mb", "size_mb"
FIRST = MICRO_F1, WINDOWS_PER_S, SIZE_MB  # in MLflow's pages of models
# Tags.
SPEED_COMPARABLE, MACHINE = "speed_comparable", "machine"
DESCRIPTION = "mlflow.note.content"
"""The tag that MLflow's pages show as the description of a run or experiment, in Markdown."""
PARENT = "mlflow.parentRunId"
"""The tag with the id of the run below which MLflow's table of runs shows a run."""
RESUMES = "resumes"
"""The tag with the id of the interrupted run that a run continues."""
ABOUT_EXPERIMENT = (
    "Natural Questions answered by BERT under profiles. Runs of `nq answer` and `nq compare` have "
    "their quality as `micro_f1`, their speed as `windows_per_s`. The tab Models compares the "
    "profiles."
)

LIMIT_S = 300.0
"""Time limit of a wait for the thread: for a result, or for all remaining calls at the end."""
LAST_S = 2.0
"""Time limit of the end of a run after an interruption or a failure."""
INTERRUPTED = (130, 143)

PAGE = "/#/experiments/{}/runs{}?workflowType=machine_learning"
"""Page of a run, or of the table of runs; without the type, MLflow opens that of traces."""
EXTERNAL, REGISTERED = "mlflow.model.isExternal", "mlflow.modelVersions"
"""The tags of a model whose files MLflow does not have, and of one that is registered."""
MODEL_NAME = re.compile(r"[/:.%\"']")
"""Characters that MLflow refuses in the name of a model."""
TASK, MAX_URI = "question-answering", 4000
VERSIONS = ("tensorflow", "tensorflow-cpu", "keras", "numpy", "apache-beam", "mlflow")


def _tags(source: str) -> dict[str, str]:
    """Returns the tags of every run: the command, its user and machine, the code and versions."""
    from mlflow.utils.git_utils import get_git_commit

    tags = {"mlflow.source.name": source, "mlflow.source.type": "LOCAL"}
    tags |= {"host": platform.node(), "version.python": platform.python_version()}
    tags |= {f"version.{name}": version for name, version in extras.versions(VERSIONS).items()}
    with contextlib.suppress(Exception):  # a user without a name, as in some containers
        tags["mlflow.user"] = getpass.getuser()
    if commit := get_git_commit(__file__):  # not of an installed package
        tags["mlflow.source.git.commit"] = commit
    return tags


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: visible(str(value), True) for key, value in values.items()}


GIVEN_RUN, GIVEN_NAME = "MLFLOW_RUN_ID", "MLFLOW_RUN_NAME"


def has_given_run() -> bool:
    """Returns whether the next run is the one that ``MLFLOW_RUN_ID`` names."""
    return GIVEN_RUN in os.environ


class Run:
    """Records a ``with`` block as one run. No method raises.

    It is a new run, or the one that the variable ``MLFLOW_RUN_ID`` names, as ``mlflow run`` sets it
    for the process that it starts; like ``mlflow.start_run``, the first run of a process takes it.
    That run, if it is new, has the name in the variable ``MLFLOW_RUN_NAME``, if there is one.
    The run is opened by ``open``, or by the first call that needs it. It ends as FINISHED, as
    FAILED after an exception, or as KILLED after an interruption; after an exception or an
    interruption nothing is opened, so that a command that cannot start leaves no run, and after an
    interruption the remaining calls are left out and the end waits for little.

    Args:
        config: where to record; with ``None`` nothing is recorded and MLflow is not imported.

    Attributes:
        available: whether recording is on and has not failed; final when the block has ended.
        ended: when the work ended, in seconds since 1970; by default when the block ends.
    """

    def __init__(
        self, config: TrackingConfig | None, name: str | None = None, source: str = "nq.answer"
    ) -> None:
        self.uri = store(config.uri if config else None)
        self.experiment = config.experiment if config else None
        self._register = config.register if config else None
        self.logs_model = config is not None and config.logs_model
        self.name, self.available, self.status = name and visible(name), bool(config), "FINISHED"
        self.ended: float | None = None
        self._source, self._started = source, time.time()
        self._unfinished: Path | None = None
        self._calls = SimpleQueue[tuple[str, Callable[[], Any], Future[Any]] | None]()
        self._thread: threading.Thread | None = None
        self._opening: Future[Any] | None = None
        self._action = ""  # of the thread, as all that follows
        self._client: Any = None
        self._info: Any = None
        self._params = dict[str, str]()  # those that a given run has already
        self._monitor: Any = None
        self._model_id: str | None = None  # of the metrics, as the dataset is
        self._dataset: tuple[str | None, str | None] = None, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        code = error.code if isinstance(error, SystemExit) else error and 1
        if isinstance(error, KeyboardInterrupt) or code in INTERRUPTED:
            self.status, self.available = "KILLED", False
        elif code:
            self.status = "FAILED"
            text = f"{type(error).__name__}: {error}".removesuffix(": ")
            self.tags({"error": without_password(text, self.uri)})
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

        The file ``unfinished`` names the run until it is finished; the run of a later start with
        the same file names this one in a tag. The work ``started`` by default when the block began.
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
        """The link to this run, or the command that shows it; ``None`` if it is not recorded."""
        run_id, uri = self.run_id, without_password(self.uri)
        if run_id and uri.startswith("http"):
            return uri.rstrip("/") + PAGE.format(self._info.experiment_id, f"/{run_id}")
        options = ["--tracking-uri", uri] if uri != DEFAULT_URI else []
        if self.experiment not in (None, DEFAULT_EXPERIMENT):
            options += ["--experiment", str(self.experiment)]
        return run_id and shlex.join(["nq", "ui", *options])

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
        self._action = action
        try:
            return function()
        except Exception as error:
            self._fail(error)
            return None

    def _fail(self, error: Exception) -> None:
        """Turns recording off and logs the reason, unless it is already off."""
        if self.available:
            self.available = False
            cause = f"MLflow: cannot {visible(self._action)}: {reason(error, self.uri)}"
            if isinstance(error, Error):  # it is not installed
                cause = str(error)
            log.warning("%s; the run is not recorded (--no-track turns this off)", cause)

    def _call(self, action: str, function: Callable[[], Any]) -> Future[Any] | None:
        """Queues a call for the thread; returns its future, ``None`` if recording is off."""
        self.open()
        if self._thread is None or not self.available:
            return None
        result = Future[Any]()
        self._calls.put((action, function, result))
        return result

    def _result(self, future: Future[Any] | None) -> Any:
        """Waits for the result of a call and returns it; ``None`` if recording is off."""
        if future is None or not self.available:
            return None
        try:
            return future.result(LIMIT_S)
        except TimeoutError:
            self._fail(TimeoutError(f"no answer within {LIMIT_S} s"))
            return None

    def _open(self) -> str | None:
        """Creates or continues the run, and creates the file that names it.

        The system is monitored only if MLflow's own variable turns it on, since the charts would
        come before all others. It is done here because ``mlflow.start_run`` would record only in
        the store of the whole process, which is not changed.
        """
        self._client = connect(self.uri)
        if not self.available:
            return None  # the command has ended meanwhile
        interrupted, given = self._interrupted(), os.environ.pop(GIVEN_RUN, None)
        if name := os.environ.pop(GIVEN_NAME, ""):
            self.name = visible(name)
        tags = _tags(self._source)
        if interrupted and interrupted != given:
            tags[RESUMES] = interrupted
        self._info = self._continue(given, tags) if given else self._create(tags)
        if self._unfinished:
            self._unfinished.write_text(f"{self._info.run_id}\n", encoding="utf-8")
        with contextlib.suppress(Exception):
            from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
            from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

            if MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.get():
                uri = self._client.tracking_uri
                monitor = SystemMetricsMonitor(self._info.run_id, tracking_uri=uri)
                monitor.start()
                self._monitor = monitor
        return str(self._info.run_id)

    def _create(self, tags: Mapping[str, str]) -> Any:
        self.experiment = experiment_name(self._client, self.experiment)
        about = self._experiment_id(self.experiment), int(1000 * self._started), tags, self.name
        return self._client.create_run(*about).info

    def _continue(self, run_id: str, tags: Mapping[str, str]) -> Any:
        """Continues a run that is not finished; it keeps its name, its params and its tags."""
        self._action = f"continue the run {run_id} of MLFLOW_RUN_ID"
        run = self._client.get_run(run_id)
        experiment = self._client.get_experiment(run.info.experiment_id).name
        if run.info.status == "FINISHED":
            raise ValueError("it is finished")
        if self.experiment not in (None, experiment):
            raise ValueError(f"it belongs to the experiment {experiment}, not {self.experiment}")
        self.experiment = experiment
        self._params.update(run.data.params)
        self._client.update_run(run_id, "RUNNING")
        for name in tags.keys() - run.data.tags.keys():
            self._client.set_tag(run_id, name, tags[name])
        return run.info

    def _experiment_id(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        if experiment := self._client.get_experiment_by_name(name):
            if DESCRIPTION not in experiment.tags:
                about = DESCRIPTION, ABOUT_EXPERIMENT
                self._client.set_experiment_tag(experiment.experiment_id, *about)
            return str(experiment.experiment_id)
        database = database_path(self.uri)
        location = database and database.parent / "mlruns" / re.sub(r"\W", "_", name)
        options = location and str(location), {DESCRIPTION: ABOUT_EXPERIMENT}
        try:
            return str(self._client.create_experiment(name, *options))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            return self._experiment_id(name)  # another process was first

    def _interrupted(self) -> str | None:
        """Ends the run that the file names, if it still runs; returns its id if there is one."""
        from mlflow.exceptions import MlflowException

        if self._unfinished is None:
            return None
        with contextlib.suppress(FileNotFoundError, UnicodeDecodeError, MlflowException):
            run = self._client.get_run(self._unfinished.read_text(encoding="utf-8").strip())
            if run.info.status == "RUNNING":
                self._client.set_terminated(run.info.run_id, "KILLED")
            return str(run.info.run_id)
        return None

    def _close(self) -> None:
        ended_ms = None if self.ended is None else int(1000 * self.ended)
        self._client.set_terminated(self._info.run_id, self.status, ended_ms)
        if self._monitor:
            self._monitor.finish()

    def params(self, values: Mapping[str, Any]) -> None:
        """Records settings as text, each once; where a given run has another value, as a tag."""
        items, given = _texts(values).items(), self._params  # it is empty until the run is open
        self._log("params", "Param", (item for item in items if item[0] not in given))
        self._log("tags", "RunTag", ((k, text) for k, text in items if given.get(k, text) != text))

    def tags(self, values: Mapping[str, Any]) -> None:
        """Records tags: values that are not compared between runs, such as paths and versions."""
        self._log("tags", "RunTag", _texts(values).items())

    def metrics(self, values: Mapping[str, Any], step: int = 0) -> None:
        """Records the values that are finite numbers; a list has one for each step from this on.

        Those of step 0 are about the model and the dataset, if these were recorded before; MLflow
        would show one of many steps for the model.
        """
        now = int(1000 * time.time())
        points = [
            (name, float(value), now, number)
            for name, one in values.items()
            for number, value in enumerate(one if isinstance(one, list) else [one], step)
            if isinstance(value, numbers.Real) and math.isfinite(value)
        ]
        points.sort(key=lambda point: FIRST.index(point[0]) if point[0] in FIRST else len(FIRST))
        self._log("metrics", "Metric", points, of_model=not step)

    def _log(
        self, field: str, entity: str, items: Iterable[tuple[Any, ...]], of_model: bool = False
    ) -> None:
        def write() -> None:
            from mlflow import entities

            about = (self._model_id, *self._dataset) if of_model else ()
            values = [getattr(entities, entity)(*item, *about) for item in items]
            self._client.log_batch(self._info.run_id, **{field: values})

        self._call(f"write the {field}", write)

    def dataset(self, files: Sequence[str], digests: Sequence[str]) -> None:
        """Records files, which have these SHA-256, as one dataset. No file is read."""
        first, n_more = Path(files[0]).name, len(files) - 1
        name = visible(f"{first} and {counted(n_more, 'more file')}" if n_more else first)
        whole = hashlib.sha256("".join(digests).encode()).hexdigest() if n_more else digests[0]
        digest = whole[:12]  # since MLflow's table of runs shows it
        uris = [path if "://" in path else str(Path(path).absolute()) for path in files]
        source = json.dumps({"uri": truncate(", ".join(uris), MAX_URI)})

        def write() -> None:
            from mlflow.entities import Dataset, DatasetInput, InputTag

            dataset = Dataset(name, digest, "local", source)
            tag = InputTag("mlflow.data.context", "evaluation")
            self._client.log_inputs(self._info.run_id, [DatasetInput(dataset, [tag])])
            self._dataset = name, digest

        self._call("write the dataset", write)

    def model(self, name: str, params: Mapping[str, Any], tags: Mapping[str, Any]) -> None:
        """Records a model, without its weights, so that MLflow compares models by their metrics."""
        allowed = MODEL_NAME.sub("_", visible(name))

        def write() -> None:
            self._model_id = self._logged_model(allowed, params, tags).model_id

        self._call("write the model", write)

    def _logged_model(self, name: str, params: Mapping[str, Any], tags: Mapping[str, Any]) -> Any:
        """Returns a new model of MLflow for the run.

        Like one of ``mlflow.create_external_model``, it is ready without files. That function would
        create it in the store of the whole process, which is not changed.
        """
        from mlflow.entities import LoggedModelOutput, LoggedModelStatus

        client, info = self._client, self._info
        texts = _texts({**tags, EXTERNAL: "true"}), _texts(params)
        logged = client.create_logged_model(info.experiment_id, name, info.run_id, *texts, TASK)
        client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
        client.log_outputs(info.run_id, [LoggedModelOutput(logged.model_id, step=0)])
        return logged

    def artifacts(self, paths: Iterable[Path]) -> None:
        """Copies files to the run."""
        files = [*map(str, paths)]

        def copy() -> None:
            for file in files:
                self._client.log_artifact(self._info.run_id, file)

        self._call("copy the artifacts", copy)

    def table(self, columns: Mapping[str, Sequence[Any]], file: str) -> None:
        """Records a table, which MLflow shows with the run and beside those of other runs."""
        values = dict(columns)
        self._call("write a table", lambda: self._client.log_table(self._info.run_id, values, file))

    def log_model(self, save: Callable[[Path, Any], object], alias: str = "") -> str | None:
        """Logs the files of the run's model; returns its URI, ``None`` if it is not recorded.

        ``save`` writes the model, which MLflow has as this entity, into a new folder, beside which
        it may leave other files. ``mlflow.pyfunc.log_model`` would log to the store of the whole
        process, which is not changed. A model that is registered gets the ``alias``.
        """

        def write() -> str:
            if self._model_id is None:
                logged = self._logged_model("nq", {}, {})
            else:
                logged = self._client.get_logged_model(self._model_id)
            with tempfile.TemporaryDirectory(prefix="nq-mlflow-") as temporary:
                folder = Path(temporary) / "mlflow"
                save(folder, logged)
                self._client.log_model_artifacts(logged.model_id, str(folder))
            if EXTERNAL in logged.tags:
                self._client.delete_logged_model_tag(logged.model_id, EXTERNAL)
            name = self._register
            try:
                return self._registered(logged, name, alias) if name else logged.model_uri
            except Exception as error:  # the run and its model are recorded
                log.warning("MLflow: cannot register %s: %s", name, reason(error, self.uri))
                return str(logged.model_uri)

        uri: str | None = self._result(self._call("log the model", write))
        if uri:
            command = ["mlflow", "models", "serve", "-m", uri, "--env-manager", "local"]
            log.info("the run has its model: %s", shlex.join(command))
        return uri

    def _registered(self, logged: Any, name: str, alias: str) -> str:
        """Registers a model; returns the URI of its version, which gets the ``alias``.

        ``mlflow.register_model`` would register it in the store of the whole process.
        """
        from mlflow.exceptions import MlflowException

        client, name, source = self._client, re.sub("[/:]", "_", name), logged.artifact_location
        try:
            client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        about = {"run_id": logged.source_run_id, "model_id": logged.model_id}
        version = client.create_model_version(name, source, **about).version
        versions = json.dumps([{"name": name, "version": version}])
        client.set_logged_model_tags(logged.model_id, {REGISTERED: versions})
        if alias:
            client.set_registered_model_alias(name, alias, version)
            log.info("%s version %s is models:/%s@%s now, too", name, version, name, alias)
        return f"models:/{name}/{version}"
