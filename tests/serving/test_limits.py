"""Tests the token, the limits and the death of a model's process, and finally draining.

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
QUEUE, TIMEOUT_S = 3, 5
JSON = {"Content-Type": "application/json"}
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def strict(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with a token, two processes and small limits; the last test ends it."""
    options = ["--workers", "2", "--queue", str(QUEUE), "--timeout", str(TIMEOUT_S)]
    folder = tmp_path_factory.mktemp("strict")
    running = RunningServer(folder, tiny_model, *options, "--batch-size", "4", NQ_TOKEN=TOKEN)
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


def queue_length(server: RunningServer) -> float:
    return server.metric("nq_queue_length")


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


def test_a_request_that_takes_too_long_is_dropped(
    strict: RunningServer, asking: httpx.Client
) -> None:
    windows = strict.metric("nq_windows_total")
    with stopped(*strict.workers()), ThreadPoolExecutor(QUEUE) as pool:
        late = list(
            pool.map(lambda n: asking.post("/v1/ask", json=ask_body(f"who {n}")), range(QUEUE))
        )
        assert queue_length(strict) <= 1
    assert [response.status_code for response in late] == [504] * QUEUE
    assert "no answer within 5 s" in late[0].json()["error"]
    assert asking.post("/v1/ask", json=ask_body()).status_code == 200
    until(lambda: strict.metric("nq_windows_total") > windows)
    assert in_progress(strict) == queue_length(strict) == 0


def test_a_record_that_takes_too_long_is_an_error_line(
    strict: RunningServer, asking: httpx.Client
) -> None:
    body = orjson.dumps({"question": "who", "context": "the lake"})
    with stopped(*strict.workers()):
        content = asking.post("/v1/predict", content=body, headers=JSON).content
    assert orjson.loads(content)["line"] == 1
    assert "no answer within 5 s" in orjson.loads(content)["error"]


@pytest.mark.parametrize(
    ("path", "message"), [("/v1/ask", b"504"), ("/v1/predict", b"nothing was received for 5 s")]
)
def test_a_client_that_stops_sending_does_not_keep_its_place(
    path: str, message: bytes, strict: RunningServer
) -> None:
    head, body = chunked(path, b'{"question"', end=False).split(b"\r\n", 1)
    with strict.connect() as connection:
        connection.sendall(head + b"\r\nAuthorization: Bearer secret\r\n" + body)
        received = b""
        while message not in received:
            part = connection.recv(4096)
            assert part, received
            received += part
    until(lambda: in_progress(strict) == 0)


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
        answers = sorted((future.result() for future in asked), key=lambda a: a.status_code)
    assert answers[0].status_code == 200
    assert answers[1].status_code in (200, 504)  # the model may be loaded for longer than allowed
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
