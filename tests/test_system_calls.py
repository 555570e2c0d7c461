"""Tests by the system's calls that commands connect to nothing of their own, nor write there."""

import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import hub_server, nq_records
from tests.support.child_processes import ROOT

STRACE = shutil.which("strace")
pytestmark = pytest.mark.skipif(STRACE is None, reason="needs strace to record the system's calls")

CALLS = (
    *("connect", "sendto", "sendmsg", "sendmmsg", "openat", "renameat2", "linkat", "symlinkat"),
    *("?open", "?creat", "?rename", "?renameat", "?link", "?symlink"),  # some systems lack these
)
ADDRESS = re.compile(r'port=htons\((\d+)\).*?inet_(?:addr\(|pton\(AF_INET6, )"([^"]+)"')
DNS = "53"
MAKES_FILE = re.compile(r"\d+ +(?:open.*O_CREAT|creat|rename|link|symlink)")
PATH = re.compile(r'(?:<([^<>]*)>, )?"([^"]*)"')
KEPT = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")


class Tracer:
    """Runs Python in ``work``, with empty folders for all other files of a user.

    No variable of the environment tells a library that a test runs it, or to be silent.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._calls = folder, folder / "calls"
        self.home, self.temporary, self.cache, self.work = (
            folder / name for name in ("home", "tmp", "cache", "work")
        )
        for path in (self.home, self.temporary, self.cache, self.work):
            path.mkdir(parents=True)

    def run(self, *arguments: object) -> str:
        """Returns what Python writes to stdout; it must succeed."""
        folders = {"HOME": self.home, "TMPDIR": self.temporary, "XDG_CACHE_HOME": self.cache}
        own = {"PYTHONPATH": ROOT, **folders}
        options = ["-f", "-qq", "-y", "--seccomp-bpf", "-e", "signal=none", "-A", "-o", self._calls]
        command = [STRACE, *options, "-e", f"trace={','.join(CALLS)}", sys.executable, "-P"]
        done = subprocess.run(
            [*map(str, command), *map(str, arguments)],
            cwd=self.work,
            env={k: os.environ[k] for k in KEPT if k in os.environ}
            | {k: str(x) for k, x in own.items()},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def found(self) -> set[str]:
        """Returns addresses, names of the network and files that no user has named."""
        names = set[str]()
        for line in self._calls.read_text(encoding="utf-8", errors="replace").splitlines():
            for port, host in ADDRESS.findall(line):
                if port == DNS or not is_loopback(host):
                    names.add(f"{host}:{port}")
            if "io.systemd.Resolve" in line:
                names.add("a look-up")
            if MAKES_FILE.match(line):
                paths = (Path(folder or self.work, name) for folder, name in PATH.findall(line))
                names |= {str(path) for path in paths if path.is_file()}
        for folder in (self.home, self.temporary, self.cache):
            names |= {str(path) for path in folder.rglob("*")}
        own = (self.cache / "nq", self.work)  # beside the bytecode of the installed packages
        return {
            name
            for name in names
            if not any(Path(name).is_relative_to(folder) for folder in own)
            and ("__pycache__" not in name or Path(name).is_relative_to(self.folder))
        }


def is_loopback(host: str) -> bool:
    address = ipaddress.ip_address(host)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@pytest.fixture
def tracer(tmp_path: Path) -> Iterator[Tracer]:
    """Yields a tracer whose processes do nothing that no user has named."""
    tracer = Tracer(tmp_path / "traced")
    yield tracer
    assert tracer.found() == set()


CHILD = """
import os, pathlib, socket, sys
if os.fork():
    os.wait()
else:
    for family, host in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        socket.socket(family, socket.SOCK_DGRAM).connect_ex((host, 9))
    socket.socket(type=socket.SOCK_DGRAM).connect_ex(("127.0.0.1", 9))
    try:
        socket.socket(type=socket.SOCK_DGRAM).sendto(b"", ("192.0.2.2", 9))
        socket.gethostbyname("name.invalid")
    except OSError:
        pass
    for folder in (pathlib.Path.home(), pathlib.Path.cwd(), pathlib.Path(sys.argv[1])):
        (folder / "file").touch()
"""


def test_what_a_child_of_a_process_does_is_found(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path / "traced")
    tracer.run("-c", CHILD, tmp_path)
    files = {str(folder / "file") for folder in (tmp_path, tracer.home)}
    found = {name for name in tracer.found() if not name.endswith(f":{DNS}")}
    assert found - {"a look-up"} == {"192.0.2.1:9", "2001:db8::1:9", "192.0.2.2:9", *files}
    assert found != tracer.found()


@pytest.mark.parametrize(
    "use",
    [
        "import openvino",
        "import onnxruntime",
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
    ids=["openvino", "onnxruntime", "huggingface_hub", "nncf", "mlflow"],
)
def test_a_library_reports_nothing_once_nq_is_imported(use: str, tracer: Tracer) -> None:
    tracer.run("-c", f"import time, nq\n{use}")


def test_files_of_the_hub_come_from_its_endpoint_alone(tracer: Tracer) -> None:
    files = tracer.work / "files"
    files.mkdir()
    for name in ("config.json", "model.safetensors"):
        (files / name).write_text("{}", encoding="utf-8")
    with hub_server.serve({"org/name": files}) as hub:
        variables = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tracer.work / "hub")}
        code = f"import os; os.environ |= {variables}; from nq.model.registry import model_folder\n"
        tracer.run("-c", f"{code}print(model_folder('org/name'))")
        assert any("/resolve/" in request for request in hub.requests)


ASK = """
import os, sys
from nq.commands.main import console
options = ["--json", "--profile", sys.argv[1], "--model", sys.argv[2]]
code = console(["ask", "when was it automated", "page.txt", *options])
sys.stdout.flush()
os._exit(code)
"""


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["mixed+xla+frozen", "openvino", "onnx+int8"])
def test_an_engine_is_silent_and_leaves_no_file_if_its_process_is_killed(
    profile: str, tiny_model: Path, tracer: Tracer
) -> None:
    (tracer.work / "page.txt").write_text("It was automated in 1986.", encoding="utf-8")
    (answer,) = tracer.run("-c", ASK, profile, tiny_model).splitlines()
    assert json.loads(answer)["question"] == "when was it automated"


@pytest.fixture
def data(tracer: Tracer) -> Path:
    path = tracer.work / "data.jsonl"
    return nq_records.write_lines(path, [nq_records.simplified(i, words=40) for i in range(3)])


UI = """
import pathlib
from tests.support.child_processes import free_port
from tests.commands.test_ui import start
with start(free_port(), pathlib.Path.cwd()) as process:
    assert process.stdout.readline()
    process.terminate()
"""


@pytest.mark.slow
def test_a_recorded_run_and_the_pages_of_mlflow_are_silent(
    data: Path, tiny_model: Path, tracer: Tracer
) -> None:
    options = ["--data", data, "--model", tiny_model, "--profile", "openvino+int8"]
    tracer.run("-m", "nq", "answer", *options, "--log-model")
    tracer.run("-c", UI)


@pytest.mark.slow
def test_a_training_and_a_pipeline_of_beam_are_silent(
    data: Path, tiny_model: Path, tracer: Tracer
) -> None:
    paths = ["--data", data, "--init", tiny_model, "--output", "new"]
    sizes = "--max-seq-length 32 --doc-stride 8 --max-query-length 8 --epochs 1 --batch-size 2"
    tracer.run("-m", "nq", "train", *paths, *sizes.split(), "--log-model")
    options = ["--data", data, "--model", tiny_model, "--output", "windows", "--workers", "2"]
    tracer.run("-m", "nq", "preprocess", *options)  # processes of Beam, which talk by gRPC


SERVE = """
import pathlib, sys
from tests.serving.servers import RunningServer, ask_body
options = pathlib.Path.cwd(), pathlib.Path(sys.argv[1]), "--profile", "onnx"
with RunningServer(*options) as server, server.wait().client() as client:
    assert client.post("/v1/ask", json=ask_body()).status_code == 200
    assert client.get("/").status_code == client.get("/docs").status_code == 200
    assert server.stop() == 0
"""


@pytest.mark.slow
def test_a_server_is_silent(tiny_model: Path, tracer: Tracer) -> None:
    tracer.run("-c", SERVE, tiny_model)
