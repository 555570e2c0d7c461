"""Tests what the server answers to requests that are wrong, too large, too many or too slow."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from nq.config import ServeConfig
from nq.model.model import Model
from nq.serving.app import MAX_UPLOADS
from nq.serving.service import THREADS
from tests.conftest import Commands
from tests.serving.servers import BEARER, TOKEN, InProcess, ask_body

JSON = {"Content-Type": "application/json"}
QUESTION = orjson.dumps(ask_body())


def text(**fields: object) -> bytes:
    return json.dumps(fields).encode()


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[InProcess]:
    with InProcess(Model.open(tiny_model), max_windows=60, max_body_mb=6) as server:
        yield server


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "JSON"),
        (b'{"question": "who", "page": "\xff\xfe"}', "JSON"),
        (b"[" * 100_000, "JSON"),
        (text(question="who", page=None), "page: "),
        (text(question="who", pages=[{"page": "x"}] * 1001), " 1000 "),
        (text(question="who", page="x", url="x"), "url: "),
        (text(question="who", pages=[{"name": "a.txt", "data": "eH*l6"}]), "pages.0.data: "),
        (text(question="who", pages=[{"name": "a.txt", "data": "eHl6eA"}]), "pages.0.data: "),
        (text(question="who", pages=[{"name": "n" * 5_000_000, "page": "x"}]), "pages.0.name: "),
        (text(question="who", pages=[{"name": "a.pdf", "data": "eHl6"}]), "a.pdf "),
        (text(question="w" * 100_001, page="x"), "100001 "),
        (text(question="who", page="lake deep " * 300), " 60:"),
    ],
)
def test_a_wrong_body_gives_one_sentence(body: bytes, named: str, server: InProcess) -> None:
    response = server.post("/v1/ask", content=body, headers=JSON)
    assert response.status_code == 422
    assert list(response.json()) == ["error"]
    error = response.json()["error"]
    assert named in error
    assert len(error) <= 300 and "\n" not in error


@pytest.mark.parametrize(
    ("headers", "named"),
    [  # a form of another site can send the first two
        ({}, "application/json"),
        ({"Content-Type": "text/plain"}, "'text/plain'"),
        ({**JSON, "Content-Encoding": "gzip"}, "compressed"),
    ],
)
def test_a_wrong_type(headers: dict[str, str], named: str, server: InProcess) -> None:
    response = server.post("/v1/ask", headers=headers, content=QUESTION)
    assert response.status_code == 415
    assert named in response.json()["error"]
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("announced", [False, True])
def test_a_body_that_is_too_large_is_not_read_to_its_end(
    announced: bool, server: InProcess
) -> None:
    sent = list[int]()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            sent.append(1 << 16)
            yield b"x" * sent[-1]

    headers = JSON | ({"Content-Length": "50000000"} if announced else {})
    response = server.post("/v1/ask", content=endless(), headers=headers)
    assert response.status_code == 413
    assert " 6000000 " in response.json()["error"]
    assert sum(sent) <= (0 if announced else 6_100_000)


def test_a_body_with_two_lengths_closes_the_connection(server: InProcess) -> None:
    """What another program may take for the next request is not answered: RFC 9112, 6.1."""
    one: dict[str, str] = {"Content-Length": "0"}
    for headers, closes in ((one, False), (one | {"Transfer-Encoding": "chunked"}, True)):
        response = server.runner.run(server.send("GET", "/healthz", headers=headers))
        assert ("connection" in response.headers) == closes


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer wrong", "Basic secret"])
def test_without_the_token_only_what_tells_nothing_is_answered(
    header: str | None, tiny_model: Path
) -> None:
    headers = {} if header is None else {"Authorization": header}
    with InProcess(Model.open(tiny_model), token=TOKEN, timeout=0.1) as server:
        for method, path in (("POST", "/v1/ask"), ("GET", "/metrics")):
            request = server.send(method, path, json=ask_body(), headers=headers)
            response = server.runner.run(request)
            assert response.status_code == 401
            assert response.headers["www-authenticate"].startswith("Bearer")
            assert "Authorization" in response.json()["error"]
        for path in ("/healthz", "/readyz", "/", "/page.js", "/docs", "/openapi.json"):
            response = server.runner.run(server.send("GET", path, headers=headers))
            assert response.status_code == (503 if path == "/readyz" else 200)  # without a model
        assert server.post("/v1/ask", json=ask_body(), headers=BEARER).status_code == 504


async def half() -> AsyncIterator[bytes]:
    """Sends a part of a question, and nothing more."""
    yield QUESTION[:20]
    await asyncio.Event().wait()


def test_a_request_that_takes_too_long(tiny_model: Path) -> None:
    with InProcess(Model.open(tiny_model), timeout=0.2) as server:
        answer = server.post("/v1/ask", content=half(), headers=JSON)
        assert answer.status_code == 504
        assert " 0.2 s" in answer.json()["error"]
        assert server.metric("nq_requests_in_progress") == 0


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("LocalHost", 200),
        ("127.0.0.1:80", 200),
        ("[::1]:8000", 200),
        ("nq.example:8000", 200),
        ("localhost.evil.example:8000", 421),
        ("", 421),
    ],
)
def test_only_hosts_of_the_server_are_answered(host: str, status: int, tiny_model: Path) -> None:
    with InProcess(Model.open(tiny_model), allowed_hosts="nq, nq.example,") as server:
        answer = server.runner.run(server.send("GET", "/healthz", headers={"Host": host}))
    assert answer.status_code == status
    assert ("--allowed-hosts" in answer.text) == (status == 421)


SITE, OTHER = "https://qa.example", "https://qa.example.evil.example"


@pytest.mark.parametrize(
    ("allowed", "origin", "answered"),
    [
        (["http://a.example", SITE], SITE, SITE),
        ([SITE], OTHER, None),
        (["*"], OTHER, "*"),
    ],
)
def test_scripts_of_allowed_sites_alone_may_ask(
    allowed: list[str], origin: str, answered: str | None, tiny_model: Path
) -> None:
    sent = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    private = {"Access-Control-Request-Private-Network": "true"}
    evil = {"Origin": origin, "Host": "evil.example"}
    name = "access-control-allow-origin"
    with InProcess(Model.open(tiny_model), token=TOKEN, allow_origin=allowed) as server:

        def preflight(headers: dict[str, str]) -> httpx.Response:
            return server.runner.run(server.send("OPTIONS", "/v1/ask", headers=sent | headers))

        asks = {"Access-Control-Request-Headers": "authorization,content-type"}
        assert preflight(asks).is_success == (answered is not None)
        assert preflight({"Access-Control-Request-Method": "PUT"}).is_error
        assert preflight(private).is_success == (answered == SITE)
        refused = server.post("/v1/ask", headers={"Origin": origin})
        assert (refused.status_code, refused.headers.get(name)) == (401, answered)
        refused = server.post("/v1/ask", headers=evil)
        assert refused.status_code == 421 and name not in refused.headers


@pytest.mark.parametrize(
    "origin",
    [
        "qa.example",
        "https://qa.example/",
        "https://QA.example",
        "https://*.example",
        "https://qa.example:443",
        "http://[::1]:80",
        "https://qa.example:0",
        "https://b\u00fccher.example",
    ],
)
def test_what_browsers_never_send_is_no_origin(origin: str) -> None:
    with pytest.raises(ValueError, match=r"expected \*, or scheme, host and "):
        ServeConfig(allow_origin=(SITE, origin))


def test_other_ports_and_schemes_are_origins() -> None:
    origins = ("http://qa.example:443", "http://[::1]:8000", "moz-extension://a-1")
    assert ServeConfig(allow_origin=origins).allow_origin == origins


@pytest.mark.slow
def test_uploads_beyond_the_limit_end_those_that_are_silent_for_longest(tiny_model: Path) -> None:
    """They count for no queue, and end when they are silent for too long."""

    async def main(one: InProcess) -> list[int]:
        def ask(content: Any) -> asyncio.Task[httpx.Response]:
            sending = one.send("POST", "/v1/ask", content=content, headers=JSON)
            return asyncio.create_task(sending)

        sent = [ask(half()) for _ in range(MAX_UPLOADS + 2)]
        while len(one.answering.uploads) < MAX_UPLOADS:
            await asyncio.sleep(0.01)
        question = ask(QUESTION)
        await asyncio.wait({sent[2]})
        assert [task.done() for task in sent] == [*[True] * 3, *[False] * (MAX_UPLOADS - 1)]
        statuses = [(await task).status_code for task in sent]
        assert not question.done() and one.metric("nq_requests_in_progress") == 1
        return statuses

    with InProcess(Model.open(tiny_model), queue=1) as one:
        assert one.runner.run(main(one)) == [408] * (MAX_UPLOADS + 2)


def test_it_is_not_healthy_while_all_threads_hang(tiny_model: Path) -> None:
    """Any that is free answers the next question."""

    async def main(one: InProcess) -> list[int]:
        answering, go, statuses = one.answering, threading.Event(), list[int]()
        hanging = list[asyncio.Task[object]]()
        for number in (THREADS - 1, 1):
            hanging += [asyncio.create_task(answering._in_thread(go.wait)) for _ in range(number)]
            assert (await one.send("POST", "/v1/ask", content=QUESTION, headers=JSON)).is_error
            while len(answering.calls) > len(hanging):  # until the question's thread is free
                await asyncio.sleep(0.01)
            await asyncio.sleep(answering.config.timeout)
            statuses.append((await one.send("GET", "/healthz")).status_code)
        go.set()
        await asyncio.gather(*hanging)
        return [*statuses, (await one.send("GET", "/healthz")).status_code]

    with InProcess(Model.open(tiny_model), timeout=0.2) as one:
        assert one.runner.run(main(one)) == [200, 503, 200]


def test_no_more_requests_than_the_queue_allows(tiny_model: Path) -> None:
    with InProcess(Model.open(tiny_model), queue=3, timeout=0.3) as server:
        answers: list[httpx.Response] = server.ask_at_once([ask_body()] * 5)
    answers.sort(key=lambda answer: answer.status_code)
    assert [answer.status_code for answer in answers] == [503] * 2 + [504] * 3
    assert int(answers[0].headers["retry-after"]) > 0
    assert answers[0].json()["error"].startswith("3 ")


def test_an_empty_token_is_refused_and_none_is_a_warning_for_a_network(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is missing, so that each command ends at once."""

    def lines() -> list[str]:
        commands.out("serve", "--model", tmp_path, "--host", "0.0.0.0", code=1)
        return commands.err.splitlines()

    warning, error = lines()
    assert "0.0.0.0" in warning and "NQ_TOKEN" in warning and str(tmp_path) in error
    monkeypatch.setenv("NQ_TOKEN", " ")
    (error,) = lines()
    assert "NQ_TOKEN" in error
    monkeypatch.setenv("NQ_TOKEN", "secret")
    (error,) = lines()
    assert str(tmp_path) in error
