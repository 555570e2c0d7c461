"""Tests the start and the end of a server, and errors before the first request."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest

from nq.commands.main import console
from nq.interruption import REPEAT_S
from tests.serving.running import ROOT, RunningServer, ask_body, until


def check_error(
    capsys: pytest.CaptureFixture[str], message: str, model: Path | str, *options: str
) -> None:
    """Checks that the command fails with one line before it serves."""
    assert console(["serve", "--model", str(model), *options]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("nq: error: ") and message in err and err.count("\n") == 1, err


def test_an_address_that_cannot_be_used_is_one_line(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        message = f"port {port} of 127.0.0.1 is in use: choose another one with --port"
        check_error(capsys, message, tiny_model, "--port", port)
    monkeypatch.setenv("NQ_TOKEN", "secret")
    for host, message in (
        ("::1%none", "cannot listen on port 8000 of ::1%none"),
        ("198.51.100.7", "198.51.100.7 is not an address of this machine"),
    ):
        check_error(capsys, message, tiny_model, "--host", host)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "0"], "workers must be at least 1, got 0"),
        (["--port", "65536"], "port must be in [0, 65535], got 65536"),
        (["--timeout", "nan"], "timeout is nan: expected a number"),
        (["--host", ""], "host is empty"),
    ],
)
def test_settings_that_make_no_sense_are_usage_errors(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert console(["serve", *options]) == 2
    assert message in capsys.readouterr().err


def test_an_empty_token_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NQ_TOKEN", " ")
    check_error(capsys, "NQ_TOKEN is empty: give it a value, or unset it", tmp_path)


def test_a_server_for_everyone_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["serve", "--model", str(tmp_path), "--host", "0.0.0.0"]
    warning = "nq: warning: everyone who reaches 0.0.0.0 may ask: set NQ_TOKEN"
    assert console(arguments) == 1
    assert warning in capsys.readouterr().err
    monkeypatch.setenv("NQ_TOKEN", "secret")
    assert console(arguments) == 1
    assert warning not in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_ends_the_server(tiny_model: Path) -> None:
    """The front process does not import Keras, so only the process of the model meets the error."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "nq", "serve", "--model", str(tiny_model)),
            *("--port", "0", "--profile", "baseline"),
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT), "KERAS_BACKEND": "no-such-backend"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("nq: error: ") and done.stderr.count("\n") == 1, done.stderr


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.slow
def test_it_is_alive_before_it_is_ready_and_ends_while_it_loads(
    tiny_model: Path, tmp_path: Path
) -> None:
    port = free_port()
    server = RunningServer(tmp_path, tiny_model, "--port", str(port))
    try:
        url = f"http://127.0.0.1:{port}"

        def is_alive() -> bool:
            try:
                return httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
            except httpx.ConnectError:
                return False

        until(is_alive)
        for path in ("/readyz", "/v1/ask", "/v1/predict"):
            method = "GET" if path == "/readyz" else "POST"
            response = httpx.request(method, url + path, json=ask_body(), trust_env=False)
            assert response.status_code == 503
            assert "the model is not loaded yet" in response.json()["error"]
        workers = server.workers()
        assert server.stop() == 0
        until(lambda: not any(process.is_running() for process in workers))
    finally:
        server.kill()
    assert "Traceback" not in server.log()


@pytest.mark.slow
def test_a_second_signal_ends_at_once_with_the_processes_of_the_model(
    tiny_model: Path, tmp_path: Path
) -> None:
    server = RunningServer(tmp_path, tiny_model).wait()
    try:
        workers = server.workers()
        workers[0].suspend()

        def ask() -> None:
            with server.client() as client, pytest.raises(httpx.HTTPError):
                client.post("/v1/ask", json=ask_body())

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: server.metric("nq_requests_in_progress") == 1)
        server.process.send_signal(signal.SIGINT)
        time.sleep(2 * REPEAT_S)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 130
        asking.join()
        workers[0].resume()
        until(lambda: not psutil.pid_exists(workers[0].pid))
    finally:
        server.kill()
