"""Tests a real server: examples of its documentation, killed processes, its end."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import orjson
import psutil
import pytest

from nq.config import ServeConfig
from nq.interruption import REPEAT_S
from tests.serving.servers import BEARER, ROOT, TOKEN, RunningServer, ask_body, chunk
from tests.support.child_processes import free_port, wait_until

pytestmark = pytest.mark.slow
TEXT = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
SHOWN = re.findall(r'"(\w+)": ', re.findall(r"^```\n(\{\"question.*?)^```", TEXT, re.M | re.S)[0])
DEFAULT = f"http://{ServeConfig.host}:{ServeConfig.port}"


@pytest.fixture(scope="module")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with two processes of the model; the last of its tests ends it."""
    options = ["--workers", "2", "--batch-size", "4", "--max-body-mb", "2"]
    with RunningServer(tmp_path_factory.mktemp("server"), tiny_model, *options) as running:
        yield running.wait()


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def test_the_examples_of_the_documentation(server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "lighthouse.txt").write_text("The lake is deep.\n\nTom was there.", "utf-8")
    (tmp_path / ".curlrc").write_text(f'header = "Authorization: {BEARER["Authorization"]}"')
    outputs = list[list[bytes]]()
    for block in BLOCKS:
        assert DEFAULT in block
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.replace(DEFAULT, server.url)],
            cwd=tmp_path,
            env=os.environ | {"NQ_TOKEN": TOKEN, "CURL_HOME": str(tmp_path)},
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        outputs.append(done.stdout.splitlines())
    for (line,) in outputs[:2]:
        answer = orjson.loads(line)
        assert answer["question"] == "when was it automated"
        assert list(answer) == [name for name in dict.fromkeys(SHOWN) if name in answer]
        assert answer["long_answer"]["text"]
    assert outputs[2][0].startswith(b'{"status":"ok"}{"status":"ready"}')
    for name in re.findall(r"`(nq_\w+)`", TEXT):
        assert all(name.encode() in b"\n".join(output) for output in outputs[2:])


@pytest.mark.parametrize("path", ["/v1/ask", "/", "/docs-assets/swagger-ui.css", "/healthz"])
def test_head_has_the_head_of_get(path: str, server: RunningServer) -> None:
    head, get = (server.exchange(method, path) for method in ("HEAD", "GET"))
    assert head == get.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" != get


def test_a_killed_process_comes_back_and_its_request_is_answered(
    server: RunningServer, client: httpx.Client
) -> None:
    workers, before = server.workers(), server.metric("nq_batch_windows_count")
    with ThreadPoolExecutor(2) as pool:
        for worker in workers:
            worker.suspend()
        asked = [pool.submit(client.post, "/v1/ask", json=ask_body("who"))]
        wait_until(lambda: server.metric("nq_batch_windows_count") == before + 1)
        asked.append(pool.submit(client.post, "/v1/ask", json=ask_body("where")))
        wait_until(
            lambda: server.metric("nq_batch_windows_count") == before + 2
        )  # the other one gets it
        workers[0].kill()
        workers[1].resume()
        assert [future.result().status_code for future in asked] == [200, 200]
    wait_until(lambda: len(server.workers()) == 2 and workers[0] not in server.workers())
    assert client.post("/v1/ask", json=ask_body()).status_code == 200


def test_sigterm_drains(server: RunningServer, client: httpx.Client) -> None:
    """The last test of this server."""
    body = orjson.dumps(ask_body())
    workers = server.workers()
    for worker in workers:
        worker.suspend()
    with ThreadPoolExecutor(1) as pool, server.stream("/v1/ask", body[:9], end=False) as half:
        waiting = pool.submit(client.post, "/v1/ask", json=ask_body())
        wait_until(lambda: server.metric("nq_requests_in_progress") == 2)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "finishing the accepted requests" in server.log())

        def refuses() -> bool:
            try:
                server.stream("/v1/ask").close()
            except ConnectionError:
                return True
            return False

        wait_until(refuses)
        assert server.process.poll() is None
        for worker in workers:
            worker.resume()
        assert waiting.result().status_code == 200
        half.sendall(chunk(body[9:]) + b"0\r\n\r\n")
        assert half.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert server.process.wait() == 0


def test_a_second_signal_ends_at_once_with_the_processes_of_the_model(
    tiny_model: Path, tmp_path: Path
) -> None:
    with RunningServer(tmp_path, tiny_model) as server, ThreadPoolExecutor(1) as pool:
        (worker,) = server.wait().workers()
        worker.suspend()
        with server.client() as client:
            asked = pool.submit(client.post, "/v1/ask", json=ask_body())
            wait_until(lambda: server.metric("nq_requests_in_progress") == 1)
            server.process.send_signal(signal.SIGINT)
            wait_until(lambda: "finishing the accepted requests" in server.log())
            time.sleep(2 * REPEAT_S)
            assert server.process.poll() is None
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait() == 130
            assert isinstance(asked.exception(), httpx.HTTPError)
        worker.resume()
        wait_until(lambda: not psutil.pid_exists(worker.pid))


def test_it_is_alive_before_it_is_ready_and_ends_while_it_loads(
    tiny_model: Path, tmp_path: Path
) -> None:
    port = str(free_port())
    options = ["--port", port, "--timeout", "1", "--profile", "grappler"]  # loads for seconds
    with RunningServer(tmp_path, tiny_model, *options) as server:
        server.url = f"http://127.0.0.1:{port}"
        wait_until(server.workers)
        (worker,) = server.workers()
        worker.suspend()
        with server.client() as client:

            def is_alive() -> bool:
                try:
                    return client.get("/healthz").status_code == 200
                except httpx.ConnectError:
                    return False

            wait_until(is_alive)
            for method, path in (("GET", "/readyz"), ("POST", "/v1/ask")):
                response = client.request(method, path, json=ask_body())
                assert response.status_code == 503
        with server.connect() as silent:
            silent.sendall(b"G")
            with contextlib.suppress(ConnectionResetError):
                assert silent.recv(1) == b""  # the server closes it
        assert server.stop() == 0
        worker.resume()
        wait_until(lambda: not worker.is_running())
