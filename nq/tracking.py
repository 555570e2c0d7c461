"""Records each command as one flat MLflow run.

Recording never fails a command: a daemon thread works through the calls of a run in their order,
and the command waits for it only for a result and at the end, each time at most ``LIMIT_S``
(300 s). The first failure (MLflow is not installed, a server is down or hangs, a database is locked
or damaged) is logged as one warning, and from then on every call does nothing.
"""

import contextlib
import functools
import hashlib
import json
import logging
import math
import os
import platform
import re
import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
PROFILE = "profile"
INSTANCES = "instances"
THREADS = "threads"
RUNNER = "runner"
# Metrics. They have no slash: MLflow lists names with one in a section above these.
MICRO_F1 = "micro_f1"
PREDICT_S = "predict_s"
WINDOWS_PER_S = "windows_per_s"
QUESTIONS = "questions"
CHANGED = "changed_answers"
PEAK_MB = "peak_mb"
SIZE_MB = "size_mb"
FIRST = (MICRO_F1, WINDOWS_PER_S, SIZE_MB)  # in MLflow's pages of models
# Tags.
SPEED_COMPARABLE = "speed_comparable"
MACHINE = "machine"
DESCRIPTION = "mlflow.note.content"
"""The tag that MLflow's pages show as the description of a run, in Markdown."""
PARENT = "mlflow.parentRunId"
"""The tag with the id of the run below which MLflow's table of runs shows a run."""
RESUMES = "resumes"
"""The tag with the id of the interrupted run that a run continues."""

LIMIT_S = 300.0
"""Time limit of a wait for the thread: for a result, or for all remaining calls at the end."""
LAST_S = 2.0
"""Time limit of the end of a run after an interruption or a failure."""
INTERRUPTED = (130, 143)

PAGE = "/#/experiments/{}/runs{}?workflowType=machine_learning"
"""Page of a run, or of the table of runs; without the type, MLflow opens that of traces."""
REGISTERED = "mlflow.modelVersions"
"""The tag of a model that is registered."""
MODEL_NAME = re.compile(r"[/:.%\"']")
"""Characters that MLflow refuses in the name of a model."""
TASK = "question-answering"
MAX_URI = 4000
VERSIONS = ("tensorflow", "tensorflow-cpu", "keras", "numpy", "apache-beam", "mlflow")
GIVEN_RUN = "MLFLOW_RUN_ID"
GIVEN_NAME = "MLFLOW_RUN_NAME"


def has_given_run() -> bool:
    """Returns whether the next run is the one that ``MLFLOW_RUN_ID`` names."""
    return GIVEN_RUN in os.environ


def _tags(source: str) -> dict[str, str]:
    """Returns the tags of every run: the command, its user and machine, the code and versions."""
    from mlflow.tracking.context.registry import resolve_tags
    from mlflow.utils.git_utils import get_git_commit

    tags = {"mlflow.source.name": source, "mlflow.source.type": "LOCAL"}
    tags |= {"host": platform.node(), "version.python": platform.python_version()}
    tags |= {f"version.{name}": version for name, version in extras.versions(VERSIONS).items()}
    if commit := get_git_commit(__file__):  # not of an installed package
        tags["mlflow.source.git.commit"] = commit
    resolved: dict[str, str] = resolve_tags(tags)
    return resolved


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: visible(str(value), True) for key, value in values.items()}


def _in_thread(method: Callable[..., None]) -> Callable[..., None]:
    """Has the thread of a run call a method, after the earlier calls; the caller does not wait."""

    @functools.wraps(method)
    def call(run: "Run", *values: Any, **options: Any) -> None:
        bound = functools.partial(method, run, *values, **options)
        run._call(f"write the {method.__name__}", bound)

    return call


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
        self.available = config is not None
        self._config = config or TrackingConfig()
        self.uri = store(self._config.uri)
        self.experiment = self._config.experiment
        self.logs_model = self._config.logs_model
        self.name = name and visible(name)
        self.status = "FINISHED"
        self.ended: float | None = None
        self._source = source
        self._started = time.time()
        self._unfinished: Path | None = None
        self._calls = SimpleQueue[tuple[str, Callable[[], object]] | None]()
        self._thread: threading.Thread | None = None
        self._done = threading.Event()  # all calls, or recording has failed
        # of the thread alone
        self._action = ""
        self._client: Any = None
        self._info: Any = None
        self._given: Mapping[str, str] = {}  # the params that a given run has already
        self._model_id: str | None = None  # of the metrics, as the dataset is
        self._model_uri: str | None = None
        self._dataset: tuple[str | None, str | None] = (None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        code = error.code if isinstance(error, SystemExit) else error and 1
        if isinstance(error, KeyboardInterrupt) or code in INTERRUPTED:
            self.status = "KILLED"
            self.available = False
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
            self._unfinished = unfinished
            self._started = started or self._started
            self._thread = threading.Thread(
                target=self._work,
                name="nq-tracking",
                daemon=True,
            )
            self._thread.start()
            self._call(f"open a run at {without_password(self.uri)}", self._open)

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run, which is opened first; ``None`` if it is not recorded."""
        return str(self._info.run_id) if self._wait() else None

    @property
    def how_to_open(self) -> str | None:
        """The link to this run, or the command that shows it; ``None`` if it is not recorded."""
        run_id = self.run_id
        uri = without_password(self.uri)
        if run_id and uri.startswith("http"):
            return uri.rstrip("/") + PAGE.format(self._info.experiment_id, f"/{run_id}")
        options = ["--tracking-uri", uri] if uri != DEFAULT_URI else []
        if self.experiment not in (None, DEFAULT_EXPERIMENT):
            options += ["--experiment", str(self.experiment)]
        return run_id and shlex.join(["nq", "ui", *options])

    # --- the thread -----------------------------------------------------------------------------

    def _call(self, action: str, function: Callable[[], object]) -> None:
        self.open()
        self._calls.put((action, function))

    def _wait(self) -> bool:
        """Waits for all calls so far; returns whether the run is recorded."""
        self._done.clear()
        self._call("wait", self._done.set)
        if self._thread is None:
            return False
        is_running = self._thread.is_alive() and self.available
        if is_running and not self._done.wait(LIMIT_S):
            self._fail(TimeoutError(f"no answer within {LIMIT_S} s"))
        return self.available

    def _work(self) -> None:
        """Works through the calls, and ends the run, also after a failure.

        MLflow's asynchronous logging does not replace this: it waits for its threads when Python
        exits, and it is for metrics, params and tags only.
        """
        for action, function in iter(self._calls.get, None):
            if self.available:
                self._attempt(action, function)
        if self._info is not None:
            self._attempt("close the run", self._close)

    def _attempt(self, action: str, function: Callable[[], object]) -> None:
        self._action = action
        try:
            function()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Turns recording off and logs the reason, unless it is already off."""
        if self.available:
            self.available = False
            cause = f"MLflow: cannot {visible(self._action)}: {reason(error, self.uri)}"
            if isinstance(error, Error):  # it is not installed
                cause = str(error)
            log.warning("%s; the run is not recorded (--no-track turns this off)", cause)
        self._done.set()

    # --- in the thread --------------------------------------------------------------------------

    def _open(self) -> None:
        """Creates or continues the run, and creates the file that names it."""
        self._client = connect(self.uri)
        if not self.available:
            raise InterruptedError("the command has ended meanwhile")
        interrupted = self._interrupted()
        given = os.environ.pop(GIVEN_RUN, None)
        self.name = visible(os.environ.pop(GIVEN_NAME, "")) or self.name
        tags = _tags(self._source)
        if interrupted and interrupted != given:
            tags[RESUMES] = interrupted
        self._info = self._continue(given, tags) if given else self._create(tags)
        if self._unfinished:
            self._unfinished.write_text(f"{self._info.run_id}\n", encoding="utf-8")

    def _create(self, tags: Mapping[str, str]) -> Any:
        from mlflow.exceptions import MlflowException

        client = self._client
        name = self.experiment = experiment_name(client, self.experiment)
        database = database_path(self.uri)
        location = database and str(database.parent / "mlruns" / re.sub(r"\W", "_", name))
        try:
            experiment_id = client.create_experiment(name, location)
        except MlflowException:
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
            experiment_id = experiment.experiment_id
        started_ms = int(1000 * self._started)
        return client.create_run(experiment_id, started_ms, tags, self.name).info

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
        self._given = run.data.params
        self._client.update_run(run_id, "RUNNING")
        for name in tags.keys() - run.data.tags.keys():
            self._client.set_tag(run_id, name, tags[name])
        return run.info

    def _interrupted(self) -> str | None:
        """Ends the run that the file names, if it still runs; returns its id if there is one."""
        from mlflow.exceptions import MlflowException

        if self._unfinished is None:
            return None
        with contextlib.suppress(
            FileNotFoundError,
            UnicodeDecodeError,
            MlflowException,
        ):
            run_id = self._unfinished.read_text(encoding="utf-8").strip()
            if self._client.get_run(run_id).info.status == "RUNNING":
                self._client.set_terminated(run_id, "KILLED")
            return run_id
        return None

    def _close(self) -> None:
        ended_ms = None if self.ended is None else int(1000 * self.ended)
        self._client.set_terminated(self._info.run_id, self.status, ended_ms)

    def _log(self, **entities: Any) -> None:
        self._client.log_batch(self._info.run_id, **entities)

    @_in_thread
    def params(self, values: Mapping[str, Any]) -> None:
        """Records settings as text, each once; where a given run has another value, as a tag."""
        from mlflow.entities import Param, RunTag

        texts = _texts(values)
        new = {name: text for name, text in texts.items() if name not in self._given}
        other = {n: text for n, text in texts.items() if self._given.get(n, text) != text}
        self._log(
            params=[Param(*item) for item in new.items()],
            tags=[RunTag(*item) for item in other.items()],
        )

    @_in_thread
    def tags(self, values: Mapping[str, Any]) -> None:
        """Records tags: values that are not compared between runs, such as paths and versions."""
        from mlflow.entities import RunTag

        self._log(tags=[RunTag(*item) for item in _texts(values).items()])

    @_in_thread
    def metrics(self, values: Mapping[str, Any], step: int = 0) -> None:
        """Records the numbers that are finite; a list has one for each step from this on.

        Those of step 0 are about the model and the dataset, if these were recorded before; MLflow
        would show one of many steps for the model.
        """
        from mlflow.entities import Metric

        about = () if step else (self._model_id, *self._dataset)
        now_ms = int(1000 * time.time())
        ordered = {name: values[name] for name in FIRST if name in values} | dict(values)
        points = [
            Metric(name, float(value), now_ms, number, *about)
            for name, one in ordered.items()
            for number, value in enumerate(one if isinstance(one, list) else [one], step)
            if math.isfinite(value)
        ]
        self._log(metrics=points)

    @_in_thread
    def dataset(self, files: Sequence[str], digests: Sequence[str]) -> None:
        """Records files, which have these SHA-256, as one dataset. No file is read."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        name = Path(files[0]).name
        digest = digests[0]
        if len(files) > 1:
            name += f" and {counted(len(files) - 1, 'more file')}"
            digest = hashlib.sha256("".join(digests).encode()).hexdigest()
        source = json.dumps({"uri": truncate(", ".join(files), MAX_URI)})
        self._dataset = (visible(name), digest[:12])  # MLflow's table of runs shows both
        dataset = Dataset(*self._dataset, "local", source)
        tag = InputTag("mlflow.data.context", "evaluation")
        self._client.log_inputs(self._info.run_id, [DatasetInput(dataset, [tag])])

    @_in_thread
    def model(self, name: str, params: Mapping[str, Any], tags: Mapping[str, Any]) -> None:
        """Records a model, without its weights, so that MLflow compares models by their metrics."""
        self._create_model(name, params, tags)

    def _create_model(self, name: str, params: Mapping[str, Any], tags: Mapping[str, Any]) -> None:
        from mlflow.entities import LoggedModelOutput, LoggedModelStatus

        client = self._client
        info = self._info
        allowed = MODEL_NAME.sub("_", visible(name))
        texts = _texts(tags), _texts(params)
        model = client.create_logged_model(
            info.experiment_id,
            allowed,
            info.run_id,
            *texts,
            TASK,
        )
        self._model_id = model.model_id
        client.finalize_logged_model(self._model_id, LoggedModelStatus.READY)
        client.log_outputs(info.run_id, [LoggedModelOutput(self._model_id, step=0)])

    @_in_thread
    def artifacts(self, paths: Iterable[Path]) -> None:
        """Copies files to the run."""
        for path in paths:
            self._client.log_artifact(self._info.run_id, str(path))

    @_in_thread
    def table(self, columns: Mapping[str, Sequence[Any]], file: str) -> None:
        """Records a table, which MLflow shows with the run and beside those of other runs."""
        self._client.log_table(self._info.run_id, columns, file)

    def log_model(self, save: Callable[[Path, Any], object], alias: str = "") -> str | None:
        """Logs the files of the run's model; returns its URI, ``None`` if it is not recorded.

        ``save`` writes the model, which MLflow has as this entity, into a new folder, beside which
        it may leave other files. ``mlflow.pyfunc.log_model`` would log to the store of the whole
        process, which is not changed. A model that is registered gets the ``alias``.
        """
        self._files(save, alias)
        if not self._wait() or self._model_uri is None:
            return None
        command = ["mlflow", "models", "serve", "-m", self._model_uri, "--env-manager", "local"]
        log.info("the run has its model: %s", shlex.join(command))
        return self._model_uri

    @_in_thread
    def _files(self, save: Callable[[Path, Any], object], alias: str) -> None:
        if self._model_id is None:
            self._create_model("nq", {}, {})
        logged = self._client.get_logged_model(self._model_id)
        with tempfile.TemporaryDirectory(prefix="nq-mlflow-") as temporary:
            folder = Path(temporary) / "mlflow"
            save(folder, logged)
            self._client.log_model_artifacts(self._model_id, str(folder))
        self._model_uri = str(logged.model_uri)
        name = self._config.register
        if name is not None:
            try:
                self._model_uri = self._registered(logged, name, alias)
            except Exception as error:  # the run and its model are recorded
                log.warning("MLflow: cannot register %s: %s", name, reason(error, self.uri))

    def _registered(self, logged: Any, name: str, alias: str) -> str:
        """Registers a model; returns the URI of its version, which gets the ``alias``.

        ``mlflow.register_model`` would register it in the store of the whole process.
        """
        from mlflow.exceptions import MlflowException

        client = self._client
        name = re.sub("[/:]", "_", name)
        with contextlib.suppress(MlflowException):  # there is one already
            client.create_registered_model(name)
        version = client.create_model_version(
            name, logged.artifact_location, logged.source_run_id, model_id=logged.model_id
        ).version
        versions = json.dumps([{"name": name, "version": version}])
        client.set_logged_model_tags(logged.model_id, {REGISTERED: versions})
        if alias:
            client.set_registered_model_alias(name, alias, version)
            log.info("%s version %s is models:/%s@%s now, too", name, version, name, alias)
        return f"models:/{name}/{version}"
