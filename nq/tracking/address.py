"""Where runs are recorded, and how a person sees them there."""

from __future__ import annotations

import os
import shlex
from urllib.parse import urlsplit

from nq.tracking import store

DEFAULT_URI = "sqlite:///mlflow.db"
DEFAULT_EXPERIMENT = "nq"


def store_uri(given: str | None) -> str:
    """The tracking store: what is given, else MLFLOW_TRACKING_URI, else a file here."""
    return given or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


def experiment_name(given: str | None) -> str:
    """The experiment: what is given, else MLFLOW_EXPERIMENT_NAME, else ``nq``."""
    return given or os.environ.get("MLFLOW_EXPERIMENT_NAME") or DEFAULT_EXPERIMENT


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
    uri = store.without_password(uri)
    if _is_http(uri):
        return uri.rstrip("/") + page
    command = f"mlflow ui --backend-store-uri {shlex.quote(uri)}"
    return f"{command} (then open http://127.0.0.1:5000{page})"


def _is_http(uri: str) -> bool:
    return urlsplit(uri).scheme in ("http", "https")
