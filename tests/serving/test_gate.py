"""Tests what no client of a test can do in a short time: not to read an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from nq.config import ServeConfig
from nq.serving.gate import Gate
from nq.serving.metrics import Metrics

SCOPE = {"type": "http", "path": "/v1/ask", "method": "POST", "headers": []}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("an answer")(scope, receive, send)


async def receive() -> Message:
    return {"type": "http.request", "body": b""}


def gate(metrics: Metrics, **settings: Any) -> Gate:
    return Gate(app, ServeConfig(**settings), metrics, None, lambda: True)


def count(metrics: Metrics, status: int) -> float | None:
    labels = {"endpoint": "/v1/ask", "status": str(status)}
    return metrics.registry.get_sample_value("nq_requests_total", labels)


def test_a_client_that_does_not_read_keeps_its_place_for_the_time_limit_only() -> None:
    async def never(_message: Message) -> None:
        await asyncio.Event().wait()

    metrics = Metrics()
    asyncio.run(gate(metrics, timeout=0.01)(SCOPE, receive, never))
    assert count(metrics, 200) == 1
    assert metrics.registry.get_sample_value("nq_requests_in_progress") == 0


@pytest.mark.parametrize("queue", [1, 3])
def test_no_more_requests_than_the_queue_allows(queue: int) -> None:
    async def main() -> list[int]:
        go, statuses = asyncio.Event(), list[int]()

        def answer_to(wait: bool) -> Callable[[Message], Awaitable[None]]:
            async def send(message: Message) -> None:
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])
                    if wait and message["status"] == 200:
                        await go.wait()

            return send

        one = gate(metrics, queue=queue)
        tasks = [asyncio.create_task(one(SCOPE, receive, answer_to(True))) for _ in range(5)]
        await asyncio.sleep(0.01)
        go.set()
        await asyncio.gather(*tasks)
        await one(SCOPE, receive, answer_to(False))
        return statuses

    metrics = Metrics()
    assert sorted(asyncio.run(main())) == [200] * (queue + 1) + [503] * (5 - queue)
    assert count(metrics, 503) == 5 - queue
