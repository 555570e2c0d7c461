"""A tracked run: opened in the background, written to, ended."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import numbers
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from nq.text import truncate
from nq.tracking import store, view
from nq.tracking.model import PackagedModel, log_model
from nq.tracking.process import has_ended, identity
from nq.tracking.values import run_tags, safe_name
from nq.tracking.view import DEFAULT_EXPERIMENT

log = logging.getLogger(__name__)

PROCESS, CONTINUATION = "process", "continuation"
"""Tags: the process that writes a run, and the text by which an unfinished run is found again."""
STALE_RUNS = 100
INTERRUPTED = (130, 143)


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
    unfinished: Path | None = None,
    started: float | None = None,
    limits: store.Limits | None = None,
) -> Iterator[Run]:
    """Records a ``with`` block as one run.

    The run is opened by :meth:`Run.open` in the background, or by the first call that needs it.
    It ends as FINISHED, as FAILED after an exception or :meth:`Run.failed`, or as KILLED after an
    interruption; after an exception or an interruption nothing is opened, so that a command that
    cannot start leaves no run, and after an interruption the end waits for little.

    Runs of the experiment that processes on this machine left as RUNNING, because they were killed,
    end as KILLED.

    Args:
        uri: Tracking store; by default MLFLOW_TRACKING_URI, then ``sqlite:///mlflow.db``.
        experiment: Its name; by default MLFLOW_EXPERIMENT_NAME, then ``nq``.
        name: Title of the run; by default MLflow invents one.
        enabled: Whether to track at all; if not, MLflow is not even imported.
        profile: Optimization profile; all runs of a profile have the same color.
        source: The command that is recorded.
        tags: Tags in addition to those of every run.
        system_metrics: Whether to sample processor, memory and GPU, if psutil is installed.
        unfinished: File that identifies the run until it is finished, see :meth:`Run.open`.
        started: When the command started, in seconds since 1970; by default now.
        limits: Time limits of the calls.
    """
    experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or DEFAULT_EXPERIMENT

    def create_or_resume(client: Any) -> Any:
        if not run.available:
            raise InterruptedError("the command has ended meanwhile")
        experiment_id = _experiment_id(client, experiment, store.database_path(run.uri))
        all_tags = run_tags(source, profile) | _texts(tags or {}) | {PROCESS: identity()}
        info = None
        if run.unfinished:
            info = _resume(client, experiment_id, run.unfinished)
            if info is None:
                all_tags[CONTINUATION] = _write_token(run.unfinished)
        if info is None:
            started_ms = int(1000 * run.started)
            info = client.create_run(experiment_id, started_ms, all_tags, run_name=name).info
        _end_stale_runs(client, experiment_id)
        view.share(client, experiment_id)
        return info

    def begin() -> tuple[Any, Any, Any]:
        client = store.connect(run.uri, run.limits)
        info = store.call_within(run.limits.call_s, lambda: create_or_resume(client))
        monitor = store.start_system_monitor(run.uri, info.run_id) if system_metrics else None
        return client, info, monitor

    run = Run(uri, limits, begin, enabled, unfinished, started)
    try:
        yield run
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) else 1
        if isinstance(error, KeyboardInterrupt) or code in INTERRUPTED:
            run.status = "KILLED"
        elif code:
            run.fail(f"{type(error).__name__}: {error}".removesuffix(": "))
        raise
    finally:
        run.close()


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {safe_name(name): str(value) for name, value in values.items()}


def _experiment_id(client: Any, name: str, database: Path | None) -> str:
    """Returns the id of an experiment, which is created with a folder beside the database."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        folder = database and str(database.parent / "mlruns" / safe_name(name).replace("/", "_"))
        try:
            return str(client.create_experiment(name, artifact_location=folder))
        except MlflowException:
            experiment = client.get_experiment_by_name(name)
            if experiment is None:  # otherwise another process was first
                raise
    return str(experiment.experiment_id)


def _write_token(unfinished: Path) -> str:
    """Writes a new token into a file and returns it.

    It is written before the run is created, so that a kill leaves no run that cannot be found.
    """
    token = uuid.uuid4().hex
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    unfinished.write_text(f"{token}\n", encoding="utf-8")
    return token


def _resume(client: Any, experiment_id: str, unfinished: Path) -> Any:
    """Continues the run that a file identifies; returns its info, ``None`` if there is none."""
    try:
        token = unfinished.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    if not token.isalnum():
        return None
    # the second condition is for a file of an earlier version, which holds the id of the run
    conditions = f"tags.{CONTINUATION} = '{token}'", f"attributes.run_id = '{token}'"
    for run in (r for c in conditions for r in client.search_runs([experiment_id], c)):
        client.update_run(run.info.run_id, status="RUNNING")
        client.set_tag(run.info.run_id, PROCESS, identity())
        if "error" in run.data.tags:
            client.delete_tag(run.info.run_id, "error")
        return run.info
    return None


def _end_stale_runs(client: Any, experiment_id: str) -> None:
    """Ends the runs as KILLED whose process on this machine was killed, as far as possible."""
    condition = "attributes.status = 'RUNNING'"
    with contextlib.suppress(Exception):
        for run in client.search_runs([experiment_id], condition, max_results=STALE_RUNS):
            if has_ended(run.data.tags.get(PROCESS, "")):
                client.set_terminated(run.info.run_id, "KILLED")


def attach(
    paths: Iterable[str | os.PathLike[str]], run_id: str, uri: str | None = None
) -> str | None:
    """Copies files and folders into a run that has ended, which is not changed otherwise.

    Returns:
        The link or command that shows the run; ``None`` if the files could not be copied.
    """

    def begin() -> tuple[Any, Any, Any]:
        client = store.connect(run.uri, run.limits, create=False)
        recorded = store.call_within(run.limits.call_s, lambda: client.get_run(run_id))
        return client, recorded.info, None

    run = Run(uri, None, begin)
    run.artifacts(paths)
    return run.how_to_open() if run.available else None


class Run:
    """A tracked run. No method raises; all do nothing if tracking is off or has failed.

    Attributes:
        uri: The tracking store.
        limits: Time limits of the calls to MLflow.
        available: Whether tracking is on and has not failed.
        status: The status that the run will have at its end.
        unfinished: File that identifies the run until it is finished.
        started: When the work began, in seconds since 1970.
    """

    def __init__(
        self,
        uri: str | None,
        limits: store.Limits | None,
        begin: Callable[[], tuple[Any, Any, Any]],
        enabled: bool = True,
        unfinished: Path | None = None,
        started: float | None = None,
    ):
        self.uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or store.DEFAULT_URI
        self.limits = limits or store.Limits.of(self.uri)
        self.available = enabled
        self.status = "FINISHED"
        self.unfinished = unfinished
        self.started = time.time() if started is None else started
        self._ended: float | None = None
        self._begin = begin
        self._opening: Future[Any] | None = None

    def open(self, unfinished: Path | None = None, started: float | None = None) -> None:
        """Begins to open the run in the background; later calls do nothing.

        Args:
            unfinished: File that identifies the run until it is finished, so that a later start
                with the same file continues it; by default that of ``start``.
            started: When the work began, in seconds since 1970; by default that of ``start``. A
                run that is continued keeps its start.
        """
        if self.available and self._opening is None:
            self.unfinished = unfinished or self.unfinished
            self.started = self.started if started is None else started
            action = f"open a run at {store.without_password(self.uri)}"
            self._opening = store.in_thread(lambda: self._attempt(action, self._begin, None))

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run, which is opened first; ``None`` if it is not recorded."""
        _, info, _ = self._wait()
        return str(info.run_id) if info else None

    def how_to_open(self) -> str | None:
        """Returns the link or command that shows this run; ``None`` if it is not recorded."""
        _, info, _ = self._wait()
        return store.how_to_open(self.uri, info.experiment_id, info.run_id) if info else None

    def how_to_compare(self) -> str | None:
        """Returns the link or command that compares the runs of its experiment, as a table."""
        _, info, _ = self._wait()
        return store.how_to_compare(self.uri, info.experiment_id) if info else None

    def params(self, values: Mapping[str, Any]) -> None:
        """Records settings as text; each may be given once."""
        self._log("params", "Param", _texts(values).items())

    def tags(self, values: Mapping[str, Any]) -> None:
        """Records what is not compared between runs: paths, versions, the device."""
        self._log("tags", "RunTag", _texts(values).items())

    def metrics(self, values: Mapping[str, Any], step: int = 0) -> None:
        """Records the values that are finite numbers."""
        self._log_metrics([(name, value, step) for name, value in values.items()])

    def curve(self, name: str, values: Sequence[float], first_step: int = 1) -> None:
        """Records one number for each step, such as the loss of a training."""
        self._log_metrics([(name, value, step) for step, value in enumerate(values, first_step)])

    def last_step(self, name: str) -> int:
        """Returns the last recorded step of a curve, 0 if there is none."""
        key = safe_name(name)
        history = self._call("read a curve", lambda c, run_id: c.get_metric_history(run_id, key))
        return max((point.step for point in history or []), default=0)

    def dataset(
        self, name: str, path: str | os.PathLike[str], digest: str, context: str = "evaluation"
    ) -> None:
        """Records name, path and digest of a dataset, which is not read."""
        uri = os.fspath(path) if "://" in os.fspath(path) else str(Path(path).absolute())

        def write(client: Any, run_id: str) -> None:
            from mlflow.entities import Dataset, DatasetInput, InputTag

            source, profile = json.dumps({"uri": uri}), json.dumps({"digest": digest})
            # MLflow's table of runs shows the digest, so it is short there
            dataset = Dataset(truncate(name, 500), digest[:12], "local", source, profile=profile)
            tag = InputTag("mlflow.data.context", context)
            client.log_inputs(run_id, [DatasetInput(dataset, [tag])])

        self._call("write the dataset", write)

    def artifacts(self, paths: Iterable[str | os.PathLike[str]], folder: str | None = None) -> None:
        """Copies files, and folders with their content, into a folder of the run."""

        def copy(client: Any, run_id: str) -> None:
            for path in map(Path, paths):
                method = client.log_artifacts if path.is_dir() else client.log_artifact
                method(run_id, str(path), folder)

        self._call("copy the artifacts", copy, self.limits.upload_s)

    def log_model(self, model: PackagedModel) -> str | None:
        """Logs a model with the run; returns its URI, ``None`` if it is not recorded."""
        _, info, _ = self._wait()

        def write(client: Any, run_id: str) -> str:
            return log_model(client, info.experiment_id, run_id, model)

        uri: str | None = self._call("log the model", write, self.limits.upload_s)
        if uri:
            log.info("the run has its model: mlflow models serve -m %s --env-manager local", uri)
        return uri

    def failed(self, reason: str) -> None:
        """Lets the run end as FAILED; its page shows the reason."""
        self.status = "FAILED"
        self.tags({"error": reason})

    def fail(self, reason: str) -> None:
        """Lets the run end as FAILED if it has been opened; nothing is recorded otherwise."""
        self.status = "FAILED"
        if self._opening is not None:
            self.failed(reason)

    def end_at(self, moment: float) -> None:
        """Sets the end of the run, in seconds since 1970, before which its work has ended.

        Processor and memory are sampled until the end of the block if the run is opened only then.
        """
        self._ended = moment
        if self._opening is not None and self._opening.done():
            monitor = (self._opening.result() or [None])[-1]
            if monitor:
                store.in_thread(monitor.finish)

    def close(self) -> None:
        """Ends the run, even if tracking has failed before."""
        killed = self.status == "KILLED"
        if self._opening is None and self.status != "FINISHED":
            self.available = False
            return
        client, info, monitor = self._wait(self.limits.killed_s if killed else None)

        def end() -> None:
            ended_ms = None if self._ended is None else int(1000 * self._ended)
            client.set_terminated(info.run_id, self.status, ended_ms)
            if monitor:
                monitor.finish()

        if self.available and not killed:
            self._attempt("close the run", end, self.limits.call_s)
        elif info:
            with contextlib.suppress(Exception):
                limit_s = self.limits.killed_s if killed else self.limits.lost_s
                store.call_within(limit_s, end)
        if self.unfinished and self.status == "FINISHED":
            self.unfinished.unlink(missing_ok=True)

    def _log_metrics(self, points: Sequence[tuple[str, Any, int]]) -> None:
        now = int(time.time() * 1000)
        finite = [
            (safe_name(name), float(value), now, step)
            for name, value, step in points
            if isinstance(value, numbers.Real) and math.isfinite(value)
        ]
        if len(finite) < len(points):
            log.debug("MLflow: %d metrics have no value", len(points) - len(finite))
        self._log("metrics", "Metric", finite)

    def _log(self, field: str, entity: str, items: Iterable[tuple[Any, ...]]) -> None:
        def write(client: Any, run_id: str) -> None:
            from mlflow import entities

            values = [getattr(entities, entity)(*item) for item in items]
            client.log_batch(run_id, **{field: values})

        self._call(f"write the {field}", write)

    def _wait(self, limit_s: float | None = None) -> tuple[Any, Any, Any]:
        """Opens the run if necessary; returns MLflow's client, its info and its system monitor.

        All are ``None`` if the run is not open within a time limit.
        """
        self.open()
        limit_s = limit_s or self.limits.open_s
        opened = None
        if self._opening:
            try:
                opened = self._opening.result(limit_s)
            except TimeoutError:
                self._give_up("open a run", TimeoutError(f"no answer within {limit_s} s"))
        return opened or (None, None, None)

    def _call(self, action: str, function: Callable[[Any, str], Any], limit_s: float = 0) -> Any:
        """Returns ``function(client, run_id)``; ``None`` if it or an earlier call has failed."""
        client, info, _ = self._wait()
        limit_s = limit_s or self.limits.call_s
        return self._attempt(action, lambda: function(client, info.run_id), limit_s)

    def _attempt(self, action: str, function: Callable[[], Any], limit_s: float | None) -> Any:
        try:
            return store.call_within(limit_s, function) if self.available else None
        except Exception as error:
            self._give_up(action, error)
            return None

    def _give_up(self, action: str, error: Exception) -> None:
        self.available = False
        if self.status != "KILLED":
            message = "MLflow: cannot %s: %s; the run is not recorded (--no-track turns this off)"
            log.warning(message, action, store.reason(error))
