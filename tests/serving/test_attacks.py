"""Tests a real server under clients that are silent or send what is slow to read."""

import contextlib
import resource
import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import orjson
import pytest

from tests.child_processes import children, wait_until
from tests.serving.servers import RunningServer, ask_body

pytestmark = pytest.mark.slow
FILES, SILENT = 256, 400
OPTIONS = ("--timeout", "600")  # no test waits for the end of a time limit


@pytest.fixture(scope="module")
def model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path_factory.mktemp("copy") / "model"))


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that may open few files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    try:
        server = RunningServer(tmp_path_factory.mktemp("server"), model, *OPTIONS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with server:
        yield server.wait()


def test_others_are_answered(server: RunningServer) -> None:
    body = orjson.dumps(ask_body(page=f"a{' ' * 1_000_000}b"))
    with contextlib.ExitStack() as stack, server.client() as client:
        blanks = stack.enter_context(server.stream("/v1/ask", body))
        for _ in range(SILENT):
            connection = socket.create_connection(blanks.getpeername(), timeout=60)
            stack.enter_context(connection).sendall(b"G")
        assert client.get("/healthz").status_code == 200
        assert client.post("/v1/ask", json=ask_body()).status_code == 200
        assert blanks.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert len(server.log()) < 2000, server.log()


def test_pages_that_are_slow_to_read_delay_nobody_and_no_end(
    tiny_model: Path, tmp_path: Path
) -> None:
    slow = [
        ask_body(page="<html><p>a" + "<div>" * 1_500_000 + "a" + "</i>" * 1_000_000),
        {
            "question": "who",
            "pages": [{"name": "a.md", "page": "    b\n    c\n\n- d\n\n" * 60_000}],
        },
    ]
    limits = ("--timeout", "16")
    with (
        RunningServer(tmp_path, tiny_model, *limits) as server,
        ThreadPoolExecutor(8) as pool,
        server.wait().client() as client,
    ):

        def ask() -> list[Future[httpx.Response]]:
            asked = [pool.submit(client.post, "/v1/ask", json=body) for body in slow]
            wait_until(lambda: server.metric("nq_requests_in_progress") == len(slow))
            return asked

        asked = ask()
        assert client.get("/healthz", timeout=5).status_code == 200
        assert client.post("/v1/ask", json=ask_body()).status_code == 200
        for response in (one.result() for one in asked):
            assert response.status_code == 422, response.text
        assert "takes more than 2 s or 1 GB of memory to read" in asked[0].result().text
        ask()
        assert server.stop() == 0
    assert not children("answer_calls")


def test_ready_only_while_a_process_answers(server: RunningServer, model: Path) -> None:
    """The last test of this server."""
    with server.client() as client:

        def status() -> int:
            return client.get("/readyz").status_code

        assert status() == 200
        server.workers()[0].kill()
        wait_until(lambda: status() == 503)
        assert "no process of the model runs" in client.get("/readyz").json()["error"]
        wait_until(lambda: status() == 200)
        process = server.workers()[0]
        process.suspend()
        with pytest.raises(httpx.ReadTimeout):  # a question is asked, which nothing answers
            wait_until(lambda: client.get("/readyz", timeout=2).status_code != 200)
        process.resume()
        wait_until(lambda: status() == 200)
        shutil.rmtree(model)
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert "the folder of the model is missing" in answer.json()["error"]
