"""Tests that no library opens a connection of its own, in any process of a command."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import hub_server, nq_records
from tests.child_processes import ROOT

LIMIT_S = 300.0
PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
RECORDER = """
import os, sys

LOCAL = ("127.0.0.1", "::1", "localhost", None)

def record(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        address = arguments[1] if event == "socket.connect" else arguments[0]
        host = address[0] if isinstance(address, tuple) else address
        is_path = event == "socket.connect" and not isinstance(address, tuple)
        if host not in LOCAL and not is_path:
            with open(os.environ["CONNECTIONS"], "a") as file:
                print(event, host, file=file)

sys.addaudithook(record)
"""
"""Is run by every process of Python, as ``sitecustomize``; forked ones inherit the hook."""


class Recorder:
    """Runs Python in a folder; records to which hosts it and its children connect.

    All are behind a proxy that never answers, as it is in a network that allows no connection.
    """

    def __init__(self, folder: Path, proxy: socket.socket) -> None:
        self._proxy = proxy
        (folder / "site").mkdir()
        (folder / "home").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(RECORDER, encoding="utf-8")
        self.folder, self.home, self._file = folder, folder / "home", folder / "connections"

    def run(self, *arguments: object) -> str:
        """Returns what Python writes to stdout; it must succeed."""
        names = ("CI", "PYTEST", "DO_NOT_TRACK", "MLFLOW", "HF_", "HTTP", "NO_", "XDG")
        others = {k: v for k, v in os.environ.items() if not k.upper().startswith(names)}
        own = {"HOME": str(self.home), "CONNECTIONS": str(self._file)}
        own |= dict.fromkeys(PROXIES, f"http://127.0.0.1:{self._proxy.getsockname()[1]}")
        own["PYTHONPATH"] = os.pathsep.join([str(self.folder / "site"), str(ROOT)])
        command = [sys.executable, "-P", *map(str, arguments)]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=others | own,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def connections(self) -> str:
        """Returns a line for each connection, the first one to the proxy included."""
        text = self._file.read_text() if self._file.exists() else ""
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._proxy.accept()
            with connection:
                text += f"proxy {connection.recv(99).decode()}\n"
        return text


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        yield Recorder(tmp_path, proxy)


def test_a_connection_of_a_forked_child_is_recorded(recorder: Recorder) -> None:
    code = "import os, socket\nif os.fork():\n    os.wait()\n"
    code += "else:\n    socket.socket(type=socket.SOCK_DGRAM).connect_ex(('192.0.2.1', 9))\n"
    recorder.run("-c", code)
    assert recorder.connections() == "socket.connect 192.0.2.1\n"


@pytest.mark.parametrize(
    "use",
    [
        "import openvino",
        "from huggingface_hub.utils import _telemetry as reports\n"
        "reports.send_telemetry('a'); reports._TELEMETRY_QUEUE.join()",
        pytest.param(
            "from nncf.telemetry import telemetry; telemetry.send_event('a', 'b', 'c')",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "import mlflow; from mlflow.telemetry import get_telemetry_client as client\n"
            "time.sleep(2); assert client() is None",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["openvino", "huggingface_hub", "nncf", "mlflow"],
)
def test_a_library_reports_nothing_once_nq_is_imported(use: str, recorder: Recorder) -> None:
    recorder.run("-c", f"import time, nq\n{use}")
    assert recorder.connections() == ""
    assert not any(path.is_file() for path in recorder.home.rglob("*openvino*"))


def test_files_of_the_hub_come_from_its_endpoint_alone(recorder: Recorder) -> None:
    files = recorder.folder / "files"
    files.mkdir()
    for name in ("config.json", "model.safetensors"):
        (files / name).write_text("{}", encoding="utf-8")
    with hub_server.serve({"org/name": files}) as hub:
        variables = {"HF_ENDPOINT": hub.address, "NO_PROXY": "127.0.0.1"}
        code = f"import os; os.environ |= {variables}; from nq.model.registry import model_folder\n"
        recorder.run("-c", f"{code}print(model_folder('org/name'))")
        assert any("/resolve/" in request for request in hub.requests)
    assert recorder.connections() == ""


@pytest.mark.slow
def test_commands_that_convert_quantize_and_record_are_silent(
    tiny_model: Path, recorder: Recorder
) -> None:
    (recorder.folder / "page.txt").write_text("It was automated in 1986.", encoding="utf-8")
    ask = ["-m", "nq", "ask", "when was it automated", "page.txt", "--top", "0"]
    assert "1986" in recorder.run(*ask)
    data = recorder.folder / "data.jsonl"
    nq_records.write_lines(data, [nq_records.simplified(i) for i in range(3)])
    options = ["--data", data, "--model", tiny_model, "--profile", "openvino+int8"]
    recorder.run("-m", "nq", "answer", *options)
    options = ["--data", data, "--model", tiny_model, "--output", "windows", "--workers", "2"]
    recorder.run("-m", "nq", "preprocess", *options)  # processes of Beam, which talk by gRPC
    assert recorder.connections() == ""
    assert not (recorder.home / "intel").exists()
