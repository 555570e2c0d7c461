"""Tests what a server answers to requests that are broken, too large or cut off."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.serving.running import HTML, PAGE, RunningServer, ask_body, chunked, until

pytestmark = pytest.mark.slow
JSON = {"Content-Type": "application/json"}
TOO_LARGE = 50_000_000
LIMIT = 2_000_000


def text(**fields: object) -> bytes:
    return json.dumps(fields).encode()


@pytest.fixture(autouse=True)
def answers_afterwards(client: httpx.Client) -> Iterator[None]:
    """After each request that fails, a good one is answered."""
    yield
    assert client.post("/v1/ask", json=ask_body()).status_code == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is not JSON: EOF"),
        (b'{"question": "who", "page": "\xff\xfe"}', "the body is not JSON: invalid unicode"),
        (b'{"question": "\\ud800", "page": "lake"}', "the body is not JSON: "),
        (b"[" * 100_000, "the body is not JSON: recursion limit"),
        (b"NaN", "the body: Input should be an object; found a number"),
        (text(), "question: field required; other fields are wrong too"),
        (text(question="who", page=None), "page: input should be a valid string; found null"),
        (text(question="who", page="x", top="3"), "top: input should be a valid integer; found a"),
        (text(question="who", page="x", top=-1), "top: input should be greater than or equal to 0"),
        (text(question="who", page="x", format="pdf"), "format: input should be 'auto', 'text'"),
        (text(question="who", page="x", url="x"), "url: extra inputs are not permitted"),
        (text(question=" \n\t ", page="x"), "question: it is empty"),
        (text(question="w" * 100_001, page="x"), "too large: 100001 characters in the question"),
        (text(question="who", page=""), "the page has no text"),
        (text(question="who", page="lake deep " * 300), "windows, the limit is 60"),
        (text(question="who", page="a", top={"</script>": "\x1b[31m"}), "found an object"),
    ],
)
def test_a_wrong_body_gives_one_sentence(body: bytes, message: str, client: httpx.Client) -> None:
    response = client.post("/v1/ask", content=body, headers=JSON)
    assert response.status_code == 422
    assert list(response.json()) == ["error"]
    error = response.json()["error"]
    assert message in error
    assert len(error) <= 300 and "\n" not in error and "Traceback" not in error


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/v1/nothing", 404, "nothing is at '/v1/nothing': /docs describes"),
        ("GET", "/../../etc/passwd", 404, "nothing is at"),
        ("GET", "/v1/ask", 405, "GET is not possible here"),
    ],
)
def test_paths_and_methods_that_do_not_exist(
    method: str, path: str, status: int, message: str, client: httpx.Client
) -> None:
    response = client.request(method, path)
    assert response.status_code == status
    assert message in response.json()["error"]


@pytest.mark.parametrize("path", ["/v1/ask", "/v1/predict"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
def test_what_a_form_of_another_site_can_send_is_refused(
    path: str, headers: dict[str, str], client: httpx.Client
) -> None:
    response = client.post(path, content=text(**ask_body()), headers=headers)
    assert response.status_code == 415
    assert "send" in response.json()["error"]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_page_of_50_mb_is_refused_while_it_is_read(streamed: bool, client: httpx.Client) -> None:
    body = text(**ask_body(page="x" * TOO_LARGE))
    parts = (body[i : i + (1 << 16)] for i in range(0, len(body), 1 << 16))
    response = client.post("/v1/ask", content=parts if streamed else body, headers=JSON)
    assert response.status_code == 413
    assert f"larger than {LIMIT} bytes" in response.json()["error"]


def test_a_body_without_end_is_refused_before_it_ends(server: RunningServer) -> None:
    with server.connect() as connection:
        connection.sendall(chunked("/v1/ask", *[b"x" * 65536] * 40, end=False))
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("path", ["/v1/ask", "/v1/predict"])
def test_a_client_that_goes_before_its_answer(path: str, server: RunningServer) -> None:
    for _ in range(8):
        with server.connect() as connection:
            connection.sendall(chunked(path, text(**ask_body(page=PAGE * 3))))
    until(lambda: server.metric("nq_requests_in_progress") == 0)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
    ],
)
def test_what_is_no_http_is_refused(data: bytes, server: RunningServer) -> None:
    with server.connect() as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(4096)
    assert not answer or answer.startswith(b"HTTP/1.1 4")


def test_markup_of_a_page_comes_back_as_text(client: httpx.Client) -> None:
    body = ask_body(page="</script><script>alert(1)</script> the lake", format="text")
    response = client.post("/v1/ask", json=body)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"
    answer = client.post("/v1/ask", json=ask_body(page=HTML)).json()
    assert "not text" not in json.dumps(answer)
