"""A tracked run: opened in the background, written to, ended."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import numbers
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from nq.text import truncate
from nq.tracking import store
from nq.tracking.values import run_tags, safe_name

log = logging.getLogger(__name__)

DEFAULT_EXPERIMENT = "nq"


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
    limits: store.Limits | None = None,
) -> Iterator[Run]:
    """Records a ``with`` block as one run.

    The run is opened by :meth:`Run.open` in the background, or by the first call that needs it.
    It ends as FINISHED, as FAILED after an exception or :meth:`Run.failed`, or as KILLED after an
    interruption.

    Args:
        uri: Tracking store; by default MLFLOW_TRACKING_URI, then ``sqlite:///mlflow.db``.
        experiment: Its name; by default MLFLOW_EXPERIMENT_NAME, then ``nq``.
        name: Title of the run; by default MLflow invents one.
        enabled: Whether to track at all; if not, MLflow is not even imported.
        profile: Optimization profile; all runs of a profile have the same color.
        source: The command that is recorded.
        tags: Tags in addition to those of every run.
        system_metrics: Whether to sample processor, memory and GPU, if psutil is installed.
        unfinished: File that names the run until it is finished; a run named there is continued.
        limits: Time limits of the calls.
    """
    experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or DEFAULT_EXPERIMENT

    def create_or_resume(client: Any) -> Any:
        experiment_id = _experiment_id(client, experiment, store.database_path(run.uri))
        info = _resume(client, experiment_id, unfinished) if unfinished else None
        if info is None:
            all_tags = run_tags(source, profile) | _texts(tags or {})
            info = client.create_run(experiment_id, run_name=name, tags=all_tags).info
        if unfinished:
            unfinished.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_text(f"{info.run_id}\n", encoding="utf-8")
        return info

    def begin() -> tuple[Any, Any, Any]:
        client = store.connect(run.uri, run.limits)
        info = store.call_within(run.limits.call_s, lambda: create_or_resume(client))
        monitor = store.start_system_monitor(run.uri, info.run_id) if system_metrics else None
        return client, info, monitor

    run = Run(uri, limits, begin, enabled)
    try:
        yield run
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) else 1
        if isinstance(error, KeyboardInterrupt) or code == 130:
            run.status = "KILLED"
        elif code:
            run.failed(f"{type(error).__name__}: {error}".removesuffix(": "))
        raise
    finally:
        run.close()
        if unfinished and run.status == "FINISHED":
            unfinished.unlink(missing_ok=True)


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


def _resume(client: Any, experiment_id: str, unfinished: Path) -> Any:
    """Continues the run that a file names and returns its info, ``None`` if that is impossible."""
    from mlflow.exceptions import MlflowException

    with contextlib.suppress(FileNotFoundError, MlflowException):  # deleted, or of another store
        run = client.get_run(unfinished.read_text(encoding="utf-8").strip())
        if run.info.experiment_id == experiment_id:
            client.update_run(run.info.run_id, status="RUNNING")
            if "error" in run.data.tags:
                client.delete_tag(run.info.run_id, "error")
            return run.info
    return None


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
    """

    def __init__(
        self,
        uri: str | None,
        limits: store.Limits | None,
        begin: Callable[[], tuple[Any, Any, Any]],
        enabled: bool = True,
    ):
        self.uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or store.DEFAULT_URI
        self.limits = limits or store.Limits()
        self.available = enabled
        self.status = "FINISHED"
        self._begin = begin
        self._opening: Future[Any] | None = None

    def open(self) -> None:
        """Begins to open the run in the background; later calls do nothing."""
        if self.available and self._opening is None:
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

    def failed(self, reason: str) -> None:
        """Lets the run end as FAILED; its page shows the reason."""
        self.status = "FAILED"
        self.tags({"error": reason})

    def close(self) -> None:
        """Ends the run, even if tracking has failed before."""
        client, info, monitor = self._wait()

        def end() -> None:
            client.set_terminated(info.run_id, self.status)
            if monitor:
                monitor.finish()

        if self.available:
            self._attempt("close the run", end, self.limits.call_s)
        elif info:
            with contextlib.suppress(Exception):
                store.call_within(self.limits.lost_s, end)

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

    def _wait(self) -> tuple[Any, Any, Any]:
        """Returns MLflow's client, information on the run and system monitor."""
        self.open()
        return (self._opening and self._opening.result()) or (None, None, None)

    def _call(self, action: str, function: Callable[[Any, str], Any], limit_s: float = 0) -> Any:
        """Returns ``function(client, run_id)``; ``None`` if it or an earlier call has failed."""
        client, info, _ = self._wait()
        limit_s = limit_s or self.limits.call_s
        return self._attempt(action, lambda: function(client, info.run_id), limit_s)

    def _attempt(self, action: str, function: Callable[[], Any], limit_s: float | None) -> Any:
        try:
            return store.call_within(limit_s, function) if self.available else None
        except Exception as error:
            self.available = False
            message = "MLflow: cannot %s: %s; the run is not recorded (--no-track turns this off)"
            log.warning(message, action, store.reason(error))
            return None
