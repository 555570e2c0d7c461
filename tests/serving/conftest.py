"""A running server that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.serving.running import RunningServer


@pytest.fixture(scope="session")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with one process of the tiny model, without a token; at its end the log is read."""
    folder = tmp_path_factory.mktemp("server")
    running = RunningServer(folder, tiny_model, "--max-windows", "60", "--max-body-mb", "2")
    try:
        yield running.wait()
        assert running.stop() == 0
    finally:
        running.kill()
    assert "Traceback" not in running.log()
    assert "never retrieved" not in running.log()


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    """A client of the shared server."""
    with server.client() as client:
        yield client
