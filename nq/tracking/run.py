"""A run of the tracking store: opened in the background, written to, closed."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nq.tracking import address, store
from nq.tracking.values import (
    DATASET_LIMIT,
    DIGEST_LIMIT,
    PARAM_LIMIT,
    TAG_LIMIT,
    cut,
    finite,
    run_tags,
    safe_name,
    texts,
)

log = logging.getLogger(__name__)

SAMPLING_S = 3.0
"""Seconds from one sample of the system metrics to the next."""

_BATCH = 100  # MLflow's limit for params and tags


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
    later: bool = False,
    unfinished: Path | None = None,
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
        later: Not to begin before :meth:`Run.open`, or when there is something to record.
        unfinished: File that names the run until it is finished; a run that it names is gone on
            with, however it was interrupted.
    """
    run = Run(
        address.store_uri(uri),
        address.experiment_name(experiment),
        unfinished,
    )
    try:
        if enabled:
            known = run_tags(source, profile) | dict(tags or {})
            run._in_background(lambda: run._open(name, known, system_metrics))
            if not later:
                run.open()
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
    run = Run(address.store_uri(uri), "")
    run._reopen(run_id)
    run.artifacts(paths)
    return None if run._lost else run.how_to_open()


class Run:
    """A tracked run, or none at all: every call is safe to make, and none of them raises.

    Attributes:
        uri: The tracking store as it was asked for.
        experiment: Name of the experiment.
    """

    def __init__(self, uri: str, experiment: str, unfinished: Path | None = None):
        self.uri = uri
        self.experiment = experiment
        self._unfinished = unfinished
        self._run_id: str | None = None
        self._experiment_id: str | None = None
        self._opening: threading.Thread | None = None
        self._client: Any = None
        self._monitor: Any = None
        self._lost = False
        self._status = "FINISHED"

    def open(self) -> None:
        """Begins to open the run in the background, where that was to wait."""
        if self._opening is not None and self._opening.ident is None:
            self._opening.start()

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
        self._log("params", "Param", texts(values, PARAM_LIMIT))

    def tags(self, values: Mapping[str, Any]) -> None:
        """Paths, versions, the device: what is worth knowing but not worth comparing."""
        self._log("tags", "RunTag", texts(values, TAG_LIMIT))

    def metrics(self, values: Mapping[str, Any], step: int = 0) -> None:
        """Figures of the run; those that are None, NaN or infinite are left out."""
        figures = finite(values)
        if len(figures) < len(values):
            log.debug("MLflow: %d metrics have no value", len(values) - len(figures))
        self._log("metrics", "Metric", figures, int(time.time() * 1000), step)

    def curve(self, name: str, values: Sequence[float], first_step: int = 1) -> None:
        """One figure a step, such as the loss of a training."""
        now = int(time.time() * 1000)
        points = [(safe_name(name), v, now, step) for step, v in enumerate(values, first_step)]
        self._log("metrics", "Metric", [p for p in points if math.isfinite(p[1])])

    def last_step(self, name: str) -> int:
        """The last step of a curve that was recorded; 0 where there is none."""
        steps = [0]

        def ask() -> None:
            points = self._client.get_metric_history(self.run_id, safe_name(name))
            steps.extend(point.step for point in points)

        self._try("cannot read a curve", ask)
        return max(steps)

    def dataset(
        self, name: str, path: str | os.PathLike[str], digest: str, context: str = "evaluation"
    ) -> None:
        """What was read, by name and digest: shown in short, kept in full; nothing is loaded."""
        where = os.fspath(path)
        place = json.dumps({"uri": where if "://" in where else str(Path(where).absolute())})

        def send() -> None:
            from mlflow.entities import Dataset, DatasetInput, InputTag

            entity = Dataset(
                cut(name, DATASET_LIMIT),
                digest[:DIGEST_LIMIT],
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

        self._try("cannot copy the artifacts", send, store.UPLOAD_S)

    def failed(self, reason: str) -> None:
        """Let the run end as FAILED, for a reason that its page shows."""
        self._status = "FAILED"
        self.tags({"error": reason})

    def how_to_open(self) -> str | None:
        """The line that tells how to see this run; ``None`` where there is none."""
        if self.run_id is None:
            return None
        return address.how_to_open(self.uri, self.experiment_id, self.run_id)

    # ------------------------------------------------------------------------ inside

    def _in_background(self, action: Callable[[], None]) -> None:
        self._opening = threading.Thread(target=action, name="mlflow-open", daemon=True)

    def _wait_until_open(self) -> None:
        if self._opening is not None:
            self.open()
            self._opening.join()
            self._opening = None

    def _open(self, name: str | None, tags: Mapping[str, Any], system_metrics: bool) -> None:
        what = f"cannot start a run at {store.without_password(self.uri)}"
        self._attempt(what, lambda: store.prepare(self.uri), store.PREPARE_S)
        if not self._lost:
            self._attempt(what, lambda: self._connect(name, tags), store.patience())
        if system_metrics and not self._lost:
            self._watch()

    def _reopen(self, run_id: str) -> None:
        def find() -> None:
            from mlflow import MlflowClient

            self._client = MlflowClient(store.absolute(self.uri))
            self._experiment_id = self._client.get_run(run_id).info.experiment_id
            self._run_id = run_id

        what = f"cannot find run {run_id} at {store.without_password(self.uri)}"
        self._attempt(what, lambda: store.prepare(self.uri, create=False), store.PREPARE_S)
        if not self._lost:
            self._attempt(what, find, store.patience())

    def _connect(self, name: str | None, tags: Mapping[str, Any]) -> None:
        from mlflow import MlflowClient

        uri = store.absolute(self.uri)
        self._client = MlflowClient(uri)
        self._experiment_id = store.experiment_id(self._client, self.experiment, uri)
        self._run_id = self._interrupted()
        if self._run_id is None:
            known = dict(texts(tags, TAG_LIMIT))
            run = self._client.create_run(self._experiment_id, run_name=name, tags=known)
            self._run_id = run.info.run_id
        if self._unfinished:
            self._unfinished.parent.mkdir(parents=True, exist_ok=True)
            self._unfinished.write_text(f"{self._run_id}\n", encoding="utf-8")

    def _interrupted(self) -> str | None:
        """The run to go on with, running again; ``None`` where there is none in this experiment."""
        from mlflow.exceptions import MlflowException

        if self._unfinished is None or not self._unfinished.is_file():
            return None
        run_id = self._unfinished.read_text(encoding="utf-8").strip()
        try:
            run = self._client.get_run(run_id)
            if run.info.experiment_id != self._experiment_id:
                return None
            self._client.update_run(run_id, status="RUNNING")
            if "error" in run.data.tags:
                self._client.delete_tag(run_id, "error")
        except MlflowException:  # deleted, or of another store
            return None
        return run_id

    def _watch(self) -> None:
        """Sample the machine in the background; a run without these figures is one as well."""
        wanted = os.environ.get("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true").lower()
        if wanted in ("false", "0") or importlib.util.find_spec("psutil") is None:
            return
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        try:
            monitor = SystemMetricsMonitor(
                self._run_id, sampling_interval=SAMPLING_S, tracking_uri=store.absolute(self.uri)
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
            store.within(store.LAST_S if self._lost else store.patience(), self._monitor.finish)
        if self.run_id is not None:
            self._attempt(
                "cannot close the run",
                lambda: self._client.set_terminated(self.run_id, self._status),
                store.LAST_S if self._lost else store.patience(),
            )
        if self._unfinished and self._status == "FINISHED":
            self._unfinished.unlink(missing_ok=True)

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
            self._attempt(what, action, seconds or store.patience())

    def _attempt(self, what: str, action: Callable[[], None], seconds: float) -> None:
        """Do something; at the first failure say so, and remember that the store is lost."""
        error = store.within(seconds, action)
        if error is not None and not self._lost:
            self._lost = True
            log.warning(
                "MLflow: %s: %s. The command goes on untracked"
                " (--tracking-uri names another store, --no-track silences this)",
                what,
                store.reason(error),
            )
