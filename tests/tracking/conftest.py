"""A database to copy, and for every test a folder and an environment of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from tests.tracking.mlflow_stores import VARIABLES, FirstRuns


@pytest.fixture(scope="session")
def first_runs(tmp_path_factory: pytest.TempPathFactory) -> FirstRuns:
    return FirstRuns(tmp_path_factory.mktemp("first"))


@pytest.fixture(autouse=True)
def fresh_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with mock.patch.dict(os.environ):
        for key in VARIABLES:
            os.environ.pop(key, None)
        yield


@pytest.fixture
def store(first_runs: FirstRuns, tmp_path: Path) -> str:
    """Copies a database to the default place in the working folder, which is faster than MLflow."""
    shutil.copyfile(first_runs.database, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"
