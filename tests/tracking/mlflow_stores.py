"""Helpers: a database that MLflow has created, recorded runs and warnings."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nq import tracking
from nq.tracking import Run
from nq.tracking.store import ENVIRONMENT, absolute

VARIABLES = {"MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_HTTP_REQUEST_TIMEOUT"}
VARIABLES |= ENVIRONMENT.keys()
QUICK_S = 20.0  # maximum delay by a store that fails, on a busy machine; MLflow waits a minute

COMMAND = """
import sys
from nq import tracking
from nq.tracking.store import import_mlflow
with tracking.start(enabled=False) as run:
    run.metrics({"a": 1})
assert "mlflow" not in sys.modules
import_mlflow()
with tracking.start(experiment="first") as run:
    run.metrics({"a": 1})
assert "tensorflow" not in sys.modules
"""


class FirstRuns:
    """Two commands that start at the same time in a folder without a database."""

    def __init__(self, folder: Path):
        self.folder = folder
        root = Path(tracking.__file__).parents[2]
        environment = {k: v for k, v in os.environ.items() if k not in VARIABLES}
        running = [
            subprocess.Popen(
                [sys.executable, "-c", COMMAND],
                cwd=folder,
                env=environment | {"PYTHONPATH": str(root)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for _ in range(2)
        ]
        self.outputs = [process.communicate()[0] for process in running]
        self.codes = [process.returncode for process in running]
        self.database = folder / "mlflow.db"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stored(run: Run) -> Any:
    """Returns the run as MLflow has recorded it."""
    from mlflow import MlflowClient

    return MlflowClient(absolute(run.uri)).get_run(run.run_id)


def the_warning(caplog: pytest.LogCaptureFixture) -> str:
    """Returns the text of the only warning, which must be one line."""
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert record.levelno == logging.WARNING
    assert record.name == "nq.tracking.run"
    message = record.getMessage()
    assert "\n" not in message
    assert "the run is not recorded" in message
    return message


def use(run: Run, folder: Path) -> None:
    """Makes every call that a command makes."""
    (folder / "answers.json").write_text("{}")
    run.params({"profile": "mixed+xla"})
    run.tags({"device": "cpu"})
    run.metrics({"quality/long_f1": 0.5})
    run.dataset("dev", folder / "dev.jsonl", "sha256:12")
    run.artifacts([folder / "answers.json"], folder="predictions")
