"""The view of an experiment that compares its runs: which columns, in which order, which charts.

MLflow's UI reads a view from a tag of the experiment; a link with the tag's key opens it. The names
of params and metrics that all commands record, so that their runs stand in one table, are here.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

DEFAULT_EXPERIMENT = "nq"
PROFILE = "profile"
TOTAL_S, WINDOWS_PER_S = "time/total_s", "time/windows_per_s"
MICRO_F1, CHANGED = "quality/micro_f1", "parity/changed_answers"
PEAK_MB = "memory/peak_mb"
SPEED_COMPARABLE, MACHINE = "speed_comparable", "machine"
INSTANCES, THREADS, RUNNER = "instances", "threads", "runner"

WIDTH, WIDE = 105, 220
"""Pixels of a column with figures, and of the profile's."""

KEY = "nq"
TAG = f"mlflow.sharedViewState.{KEY}"
CHARTS = (
    *(MICRO_F1, "quality/long_f1", "quality/short_f1"),
    *(TOTAL_S, WINDOWS_PER_S, "time/predict_s"),
    *(PEAK_MB, CHANGED),
)
"""Metrics with a bar chart, those of a group together; other metrics come after them."""


def share(client: Any, experiment_id: str) -> None:
    """Stores the view in an experiment, as far as possible."""
    with contextlib.suppress(Exception):
        text = json.dumps(state())
        if client.get_experiment(experiment_id).tags.get(TAG) != text:
            client.set_experiment_tag(experiment_id, TAG, text)


def state() -> dict[str, Any]:
    """Returns the view as MLflow's UI stores it."""
    measured = (TOTAL_S, WINDOWS_PER_S, MICRO_F1, CHANGED, PEAK_MB)
    metrics = [f"metrics.`{name}`" for name in measured]
    columns = [f"params.`{PROFILE}`", *metrics, f"tags.`{SPEED_COMPARABLE}`"]
    groups = dict.fromkeys(name.partition("/")[0] for name in CHARTS)
    charts = [_chart(name) for name in CHARTS]
    sections = [_section(group) for group in (*groups, "Model metrics", "System metrics")]
    return {
        "selectedColumns": columns,
        "columnOrder": columns,
        "columnWidths": {column: WIDE if column == columns[0] else WIDTH for column in columns},
        "orderByKey": f"metrics.`{TOTAL_S}`",
        "orderByAsc": True,
        "runsHiddenMode": "FIRST_20_RUNS",
        "compareRunCharts": charts,
        "compareRunSections": sections,
        "isAccordionReordered": True,
    }


def _section(name: str) -> dict[str, Any]:
    flags = {"display": True, "isReordered": True, "deleted": False, "isGenerated": False}
    return {"uuid": name, "name": name, **flags}


def _chart(metric: str) -> dict[str, Any]:
    return {
        "uuid": metric,
        "type": "BAR",
        "metricKey": metric,
        "metricSectionId": metric.partition("/")[0],
        "runsCountToCompare": 20,
        "deleted": False,
        "isGenerated": True,
    }
