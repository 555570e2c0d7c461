"""Tests a real server under clients that are silent or send what is slow to read."""

import contextlib
import resource
import select
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import orjson
import psutil
import pytest

from tests.serving.servers import RunningServer, ask_body
from tests.support.child_processes import PATIENCE_S, children, wait_until

pytestmark = pytest.mark.slow
FILES, SILENT = 256, 400


@pytest.fixture(scope="module")
def model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path_factory.mktemp("copy") / "model"))


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that may open few files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    try:
        server = RunningServer(tmp_path_factory.mktemp("server"), model)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with server:
        yield server.wait()


def test_others_are_answered(server: RunningServer) -> None:
    with contextlib.ExitStack() as stack, server.client() as client:
        for _ in range(SILENT):
            stack.enter_context(server.connect()).sendall(b"G")
        assert client.get("/healthz").status_code == 200
        assert client.post("/v1/ask", json=ask_body()).status_code == 200
    assert len(server.log()) < 2000, server.log()


def test_what_is_not_http_writes_few_lines(server: RunningServer) -> None:
    """Nor does a request that asks for another protocol, or that goes wrong behind its answer."""
    head = b"POST /nothing HTTP/1.1\r\nHost: localhost\r\n"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
    upgrade = head + b"Connection: upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    for data, later in ((b"\x16\x03\x01 no\r\n\r\n", b""), (chunked, b"x\r\n"), (upgrade, b"")):
        for _ in range(20):
            with server.connect() as connection:
                connection.sendall(data)
                assert connection.recv(4096).startswith(b"HTTP/1.1 4")
                connection.sendall(later)
                with contextlib.suppress(ConnectionError):
                    while connection.recv(4096):
                        pass
    with server.client() as client:
        assert client.get("/healthz").status_code == 200
    assert len(server.log()) < 2000, server.log()


def test_long_pages_take_turns_and_end_with_their_clients(tiny_model: Path, tmp_path: Path) -> None:
    page = " ".join(f"lake{n} is deep." for n in range(2000))
    long, windows = orjson.dumps(ask_body(page=page)), "nq_windows_total"
    options = ("--batch-size", "1", "--max-windows", "100000")
    with RunningServer(tmp_path, tiny_model, *options) as server, server.wait().client() as client:
        (process,) = server.workers()
        process.suspend()
        with contextlib.ExitStack() as stack:
            others = [stack.enter_context(server.stream("/v1/ask", long))]
            wait_until(lambda: server.metric("nq_batch_windows_sum") > 0)  # the first has begun
            others.append(stack.enter_context(server.stream("/v1/ask", long)))
            wait_until(lambda: server.metric("nq_queue_length") == 1)
            total = 2 * server.metric("nq_batch_windows_sum")
            process.resume()
            assert client.post("/v1/ask", json=ask_body(page="It rains.")).status_code == 200
            assert 0 < server.metric(windows) < total
            assert not select.select(others, [], [], 0)[0]
        wait_until(lambda: server.metric("nq_requests_in_progress") == 0)
        computed = list[float]()
        for _ in range(2):
            assert client.post("/v1/ask", json=ask_body(page="It rains.")).status_code == 200
            computed.append(server.metric(windows))
        assert computed[1] == computed[0] + 1 < total


def test_a_process_that_hangs_is_told_and_ends_soon(tiny_model: Path, tmp_path: Path) -> None:
    ends_soon = "from nq.serving import server; server.STUCK_END_S = 0.5"
    with (
        RunningServer(tmp_path, tiny_model, "--timeout", "5", code=ends_soon) as server,
        server.wait().client() as client,
        ThreadPoolExecutor(1) as pool,
    ):

        def status() -> int:
            return client.get("/healthz").status_code

        wait_until(lambda: client.post("/v1/ask", json=ask_body()).status_code == 200)
        (process,) = server.workers()
        process.suspend()
        assert status() == 200
        assert client.post("/v1/ask", json=ask_body()).status_code == 504
        wait_until(lambda: status() == 503)
        process.resume()
        wait_until(lambda: status() == 200)
        process.suspend()
        assert client.post("/v1/ask", json=ask_body()).status_code == 504
        wait_until(lambda: status() == 503)
        waiting = pool.submit(client.post, "/v1/ask", json=ask_body())
        wait_until(lambda: server.metric("nq_requests_in_progress") == 1)
        assert server.stop() == 128 + signal.SIGTERM
        assert isinstance(waiting.exception(), httpx.HTTPError)  # in place of its 504
    process.resume()
    wait_until(lambda: not psutil.pid_exists(process.pid))


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
    limit = f"from nq.serving import service; service.READ_SHARE = 2 / {PATIENCE_S}"
    with (
        RunningServer(tmp_path, tiny_model, code=limit) as server,
        ThreadPoolExecutor(8) as pool,
        server.wait().client() as client,
    ):

        def ask() -> list[Future[httpx.Response]]:
            asked = [pool.submit(client.post, "/v1/ask", json=body) for body in slow]
            wait_until(lambda: server.metric("nq_requests_in_progress") == len(slow))
            return asked

        asked = ask()
        assert client.get("/healthz").status_code == 200
        assert client.post("/v1/ask", json=ask_body()).status_code == 200
        assert not all(one.done() for one in asked)
        for response in (one.result() for one in asked):
            assert response.status_code == 422, response.text
        assert " 2 s " in asked[0].result().text
        ask()
        assert server.stop() == 0
    assert not children("reads pages")


def test_ready_only_while_a_process_answers(server: RunningServer, model: Path) -> None:
    """The last test of this server."""
    with server.client() as client:

        def status() -> int:
            return client.get("/readyz").status_code

        assert status() == 200
        server.workers()[0].kill()
        wait_until(lambda: status() == 503)
        wait_until(lambda: status() == 200)
        process = server.workers()[0]
        process.suspend()
        with pytest.raises(httpx.ReadTimeout):  # a question is asked, which nothing answers
            wait_until(lambda: client.get("/readyz", timeout=2).status_code != 200)
        process.resume()
        wait_until(lambda: status() == 200)
        shutil.rmtree(model)
        assert status() == 503
