"""The runs that a store has recorded, as far as they can be compared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nq.tracking import store, view

PAGE = 1000
OLD_NAMES = {
    view.WINDOWS_PER_S: "speed/windows_per_s",
    view.PEAK_MB: "tally/peak_memory_bytes",
}
"""Names of metrics in runs of earlier versions."""
MIB = 1 << 20


@dataclass(frozen=True)
class RecordedRun:
    """The figures of one run that are compared; ``None`` where it has none.

    Args:
        name: its title.
        profile: the optimizations.
        total_s: seconds of all its parts.
        windows_per_s: its speed.
        micro_f1: its quality.
        changed: how many answers differ from those of the run that it was compared with.
        peak_mb: largest resident memory in MiB.
        speed_comparable: ``yes``, or ``no`` with the reasons; empty if it is not known.
        machine: processor and number of cores; empty if it is not known.
        status: ``FINISHED`` or, if it has not ended well, another one of MLflow.
        started: in seconds since 1970.
        run_id: of MLflow.
        instances: processes that computed the windows; ``None`` if it was that of the run.
        threads: of each of them; ``None`` if that was left to the libraries.
    """

    name: str
    profile: str
    total_s: float
    windows_per_s: float | None
    micro_f1: float | None
    changed: int | None
    peak_mb: float | None
    speed_comparable: str
    machine: str
    status: str
    started: float
    run_id: str
    instances: int | None = None
    threads: int | None = None

    @classmethod
    def of(cls, run: Any) -> RecordedRun | None:
        """Returns the figures of a run of MLflow; ``None`` if it has no profile or no time."""
        metrics, tags = run.data.metrics, run.data.tags
        if view.TOTAL_S not in metrics or view.PROFILE not in run.data.params:
            return None
        peak_mb = metrics.get(view.PEAK_MB)
        if peak_mb is None and OLD_NAMES[view.PEAK_MB] in metrics:
            peak_mb = metrics[OLD_NAMES[view.PEAK_MB]] / MIB
        changed = metrics.get(view.CHANGED)
        params = run.data.params
        processes = (
            int(params[n]) if n in params else None for n in (view.INSTANCES, view.THREADS)
        )
        return cls(
            run.info.run_name or "",
            run.data.params[view.PROFILE],
            metrics[view.TOTAL_S],
            _either(metrics, view.WINDOWS_PER_S),
            metrics.get(view.MICRO_F1),
            None if changed is None else int(changed),
            peak_mb,
            tags.get(view.SPEED_COMPARABLE, ""),
            tags.get(view.MACHINE, ""),
            run.info.status,
            run.info.start_time / 1000,
            run.info.run_id,
            *processes,
        )


def _either(metrics: Mapping[str, float], name: str) -> float | None:
    return metrics.get(name, metrics.get(OLD_NAMES[name]))


@dataclass(frozen=True)
class History:
    """The runs of an experiment.

    Args:
        experiment: its name.
        runs: those that can be compared, the newest first.
        others: how many others there are: trainings, and runs that have no times yet.
        how_to_open: how to see them in MLflow.
    """

    experiment: str
    runs: tuple[RecordedRun, ...]
    others: int
    how_to_open: str


def history(uri: str | None = None, experiment: str | None = None) -> History:
    """Returns the runs of an experiment.

    Args:
        uri: tracking store; by default MLFLOW_TRACKING_URI, then ``sqlite:///mlflow.db``.
        experiment: its name; by default MLFLOW_EXPERIMENT_NAME, then ``nq``.

    Raises:
        ValueError: the store cannot be read, or has no such experiment.
    """
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or store.DEFAULT_URI
    name = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or view.DEFAULT_EXPERIMENT
    limits = store.Limits.of(uri)
    try:
        client = store.connect(uri, limits, create=False)
        found = store.call_within(limits.open_s, lambda: client.get_experiment_by_name(name))
        if found is None:
            experiments = store.call_within(limits.open_s, client.search_experiments)
            names = ", ".join(sorted(e.name for e in experiments)) or "none"
            raise LookupError(
                f"no experiment {name!r} in {store.without_password(uri)}, which has {names}: "
                "give one of them as --experiment"
            )
        runs = store.call_within(limits.upload_s, lambda: _all_runs(client, found.experiment_id))
        store.call_within(limits.call_s, lambda: view.share(client, found.experiment_id))
    except LookupError as error:
        raise ValueError(error.args[0]) from error
    except Exception as error:
        where = store.without_password(uri)
        raise ValueError(
            f"cannot read the runs in {where}: {store.reason(error)}; give the store of your runs "
            "as --tracking-uri"
        ) from error
    compared = [run for run in map(RecordedRun.of, runs) if run]
    link = store.how_to_compare(uri, found.experiment_id)
    return History(name, tuple(compared), len(runs) - len(compared), link)


def _all_runs(client: Any, experiment_id: str) -> list[Any]:
    runs, token = list[Any](), None
    while True:
        page = client.search_runs([experiment_id], max_results=PAGE, page_token=token)
        runs, token = [*runs, *page], page.token
        if not token:
            return runs
