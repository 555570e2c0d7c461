"""Tests the limits of the server in one process, without a socket: time and number of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from starlette.types import Message

from nq.config import ServeConfig
from nq.model.spec import find_model
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.serving.answering import Answering
from nq.serving.app import make_app
from nq.serving.gate import Gate
from tests.serving.running import ask_body

QUESTION = orjson.dumps(ask_body())
RECORD = orjson.dumps({"question": "who", "context": "the lake"})


class Waiting:
    """A server whose requests wait until their time is over, because no batch is made."""

    def __init__(self, model: Path, **settings: Any) -> None:
        spec, config = find_model(model), ServeConfig(**settings)
        tokenizer = load_tokenizer(spec.folder, spec.windows.compat)
        self.answering = Answering(spec, tokenizer, config)
        self.answering.is_loaded = True
        app = make_app(self.answering, has_token=False)
        metrics = self.answering.metrics
        self.gate = Gate(app, config, metrics, None, self.answering.is_ready)

    async def post(self, path: str, content: bytes | AsyncIterator[bytes]) -> httpx.Response:
        transport = httpx.ASGITransport(self.gate)
        async with httpx.AsyncClient(transport=transport, base_url="http://nq") as client:
            headers = {"Content-Type": "application/json"}
            return await client.post(path, content=content, headers=headers)

    def metric(self, name: str, **labels: str) -> float | None:
        return self.answering.metrics.registry.get_sample_value(name, labels)


def test_what_takes_too_long_is_an_error(tiny_model: Path) -> None:
    server = Waiting(tiny_model, timeout=0.2)
    answer = asyncio.run(server.post("/v1/ask", QUESTION))
    assert answer.status_code == 504
    assert "no answer within 0.2 s" in answer.json()["error"]
    server = Waiting(tiny_model, timeout=0.2)
    line = asyncio.run(server.post("/v1/predict", RECORD)).json()
    assert line["line"] == 1 and "no answer within 0.2 s" in line["error"]
    assert server.metric("nq_requests_in_progress") == 0


@pytest.mark.parametrize(
    ("path", "message"),
    [("/v1/ask", "no answer within 0.2 s"), ("/v1/predict", "nothing was received for 0.2 s")],
)
def test_a_client_that_stops_sending_does_not_keep_its_place(
    path: str, message: str, tiny_model: Path
) -> None:
    async def half() -> AsyncIterator[bytes]:
        yield QUESTION[:20]
        await asyncio.Event().wait()

    server = Waiting(tiny_model, timeout=0.2)
    assert message in asyncio.run(server.post(path, half())).json()["error"]
    assert server.metric("nq_requests_in_progress") == 0


def test_a_client_that_does_not_read_keeps_its_place_for_the_time_limit_only(
    tiny_model: Path,
) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def never(_message: Message) -> None:
        await asyncio.Event().wait()

    server = Waiting(tiny_model, timeout=0.01)
    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "path": "/v1/predict", "method": "POST", "headers": headers}
    asyncio.run(server.gate(scope | {"query_string": b"", "root_path": ""}, receive, never))
    assert server.metric("nq_requests_total", endpoint="/v1/predict", status="200") == 1
    assert server.metric("nq_requests_in_progress") == 0


@pytest.mark.parametrize("queue", [1, 3])
def test_no_more_requests_than_the_queue_allows(queue: int, tiny_model: Path) -> None:
    async def main() -> list[httpx.Response]:
        server = Waiting(tiny_model, queue=queue, timeout=0.5)
        return await asyncio.gather(*(server.post("/v1/ask", QUESTION) for _ in range(5)))

    answers = sorted(asyncio.run(main()), key=lambda answer: answer.status_code)
    assert [answer.status_code for answer in answers] == [503] * (5 - queue) + [504] * queue
    assert int(answers[0].headers["retry-after"]) > 0
    assert f"{queue} requests are waiting" in answers[0].json()["error"]
