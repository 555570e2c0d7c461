"""Tests the token and the death of a model's process, and finally draining.

Stopped processes of the model make requests wait for as long as a test wants.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import orjson
import psutil
import pytest

from tests.chromium import browser, needs_chromium
from tests.serving.running import RunningServer, ask_body, chunked, until

pytestmark = pytest.mark.slow
TOKEN = "secret"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def strict(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with a token and two processes; the last test ends it."""
    folder, options = tmp_path_factory.mktemp("strict"), ["--workers", "2", "--batch-size", "4"]
    running = RunningServer(folder, tiny_model, *options, NQ_TOKEN=TOKEN)
    try:
        yield running.wait()
    finally:
        running.kill()
    assert "Traceback" not in running.log()


@pytest.fixture
def asking(strict: RunningServer) -> Iterator[httpx.Client]:
    with strict.client(headers=BEARER) as client:
        yield client


@contextlib.contextmanager
def stopped(*processes: psutil.Process) -> Iterator[None]:
    """Stops processes for the block; those that have ended meanwhile stay so."""
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def in_progress(server: RunningServer) -> float:
    return server.metric("nq_requests_in_progress")


def batches(server: RunningServer) -> float:
    return server.metric("nq_batch_windows_count")


@pytest.mark.parametrize(
    "header",
    [None, "Bearer", "Bearer wrong", "Basic secret"],
)
def test_without_the_token_only_what_tells_nothing_is_answered(
    header: str | None, strict: RunningServer
) -> None:
    headers = {} if header is None else {"Authorization": header}
    with strict.client(headers=headers) as client:
        for path in ("/v1/ask", "/v1/predict", "/nothing"):
            response = client.post(path, json=ask_body())
            assert response.status_code == 401
            assert response.headers["www-authenticate"].startswith("Bearer")
            assert "a token is needed" in response.json()["error"]
        assert client.get("/metrics").status_code == 401
        for path in ("/healthz", "/readyz", "/", "/page.js", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200


def test_a_killed_process_comes_back_and_its_request_is_answered(
    strict: RunningServer, asking: httpx.Client
) -> None:
    workers, before = strict.workers(), batches(strict)
    with ThreadPoolExecutor(2) as pool:
        with stopped(*workers):
            asked = [pool.submit(asking.post, "/v1/ask", json=ask_body("who"))]
            until(lambda: batches(strict) == before + 1)
            asked.append(pool.submit(asking.post, "/v1/ask", json=ask_body("where")))
            until(lambda: batches(strict) == before + 2)  # the other process gets it
            workers[0].kill()
        assert [future.result().status_code for future in asked] == [200, 200]
    until(lambda: len(strict.workers()) == 2 and workers[0] not in strict.workers())
    assert asking.post("/v1/ask", json=ask_body()).status_code == 200


@needs_chromium
@pytest.mark.browser
def test_the_page_asks_for_the_token(strict: RunningServer, tmp_path: Path) -> None:
    ask = "document.getElementById('ask').click()"
    with browser(tmp_path) as tab:
        tab.open(f"{strict.url}/")
        tab.run("page.value = 'the lake'; question.value = 'who'")
        assert not tab.run("document.getElementById('token').checkVisibility()")
        tab.run(ask)
        tab.wait_for("document.querySelector('.problem')")
        assert "a token is needed" in tab.run("result.textContent")
        assert tab.run("document.getElementById('token').checkVisibility()")
        tab.run(f"document.getElementById('token').value = '{TOKEN}'; {ask}")
        tab.wait_for("document.querySelector('.answer')")


def test_sigterm_drains(strict: RunningServer, asking: httpx.Client) -> None:
    """The last test of this server."""
    record = orjson.dumps({"question": "who", "context": "the lake", "id": 1}) + b"\n"
    head, body = chunked("/v1/predict", record, end=False).split(b"\r\n", 1)
    with ThreadPoolExecutor(1) as pool, strict.connect() as stream:
        with stopped(*strict.workers()):
            stream.sendall(head + b"\r\nAuthorization: Bearer secret\r\n" + body)
            waiting = pool.submit(asking.post, "/v1/ask", json=ask_body())
            until(lambda: in_progress(strict) == 2)
            strict.process.send_signal(signal.SIGTERM)
            until(lambda: "finishing the accepted requests" in strict.log())

            def refuses() -> bool:
                try:
                    strict.connect().close()
                except ConnectionRefusedError:
                    return True
                return False

            until(refuses)
            assert strict.process.poll() is None
        assert waiting.result().status_code == 200
        received = b""
        while part := stream.recv(4096):
            received += part
        assert b'"example_id":1' in received
        assert b'{"line":2,"error":"the server is about to end: send this line' in received
    assert strict.process.wait(60) == 0
