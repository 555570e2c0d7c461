"""Many requests, of which a third is broken, too large or cut off."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import httpx

from experiments.serving.load import Body, client
from experiments.serving.process import ServerProcess

EDGE = 100
"""Requests at the beginning and at the end whose memory is compared."""
CLIENTS = 8
JSON = {"Content-Type": "application/json"}
WRONG = (
    (b"", 422),
    (b"{", 422),
    (b'{"question": "who", "page": "\xff"}', 422),
    (b'{"question": 1, "page": []}', 422),
    (b'{"question": "", "page": "the lake"}', 422),
    (b'{"question": "who", "page": "<body></body>"}', 422),
    (b"[" * 10_000, 422),
)
"""Bodies with the status that they should get."""


@dataclass(frozen=True)
class Soak:
    """What became of the requests.

    Args:
        requests: their number.
        good: those that a server should answer.
        crashes: processes of the server that ended, or tracebacks in its log.
        lost: good requests without their answer.
        misjudged: other requests that got another status than they should.
        first_mb, last_mb: mean memory during the first and the last ``EDGE`` requests.
    """

    requests: int
    good: int
    crashes: int
    lost: int
    misjudged: int
    first_mb: float
    last_mb: float


async def soak(
    server: ServerProcess, bodies: Sequence[Body], requests: int, too_large: int
) -> Soak:
    """Sends requests, of which every third is not good.

    Args:
        server: is asked.
        bodies: good requests.
        requests: number of requests.
        too_large: bytes of a body that is too large.
    """
    host, port = server.url.removeprefix("http://").split(":")
    before = {process.pid for process in server.workers()}
    counts, memory = Counter[str](), list[float]()
    numbers = iter(range(requests))
    async with client(server.url) as http:
        bad: list[Callable[[int], Awaitable[str]]] = [
            lambda n: _wrong(http, n),
            lambda n: _too_large(http, too_large),
            lambda n: _cut_off(host, int(port), bodies[n % len(bodies)]),
        ]

        async def work() -> None:
            for n in numbers:
                is_good, body = n % 3 < 2, bodies[n % len(bodies)]
                sent = _good(http, body) if is_good else bad[n // 3 % len(bad)](n)
                counts[await sent] += 1
                counts["good"] += is_good
                memory.append(server.memory_mb())

        await asyncio.gather(*(work() for _ in range(CLIENTS)))
    dead = before - {process.pid for process in server.workers()}
    edge = min(EDGE, requests // 2)
    return Soak(
        requests=requests,
        good=counts["good"],
        crashes=len(dead) + server.log.read_text().count("Traceback"),
        lost=counts["lost"],
        misjudged=counts["misjudged"],
        first_mb=sum(memory[:edge]) / edge,
        last_mb=sum(memory[-edge:]) / edge,
    )


async def _good(http: httpx.AsyncClient, body: Body) -> str:
    try:
        response = await http.post("/v1/ask", json=body)
        is_right = response.status_code == 200 and response.json()["question"] == body["question"]
    except (httpx.HTTPError, ValueError):
        return "lost"
    return "answered" if is_right else "lost"


async def _wrong(http: httpx.AsyncClient, number: int) -> str:
    body, status = WRONG[number % len(WRONG)]
    response = await http.post("/v1/ask", content=body, headers=JSON)
    return "refused" if response.status_code == status else "misjudged"


async def _too_large(http: httpx.AsyncClient, size: int) -> str:
    body = {"question": "who", "page": "x" * size}
    response = await http.post("/v1/ask", json=body)
    return "refused" if response.status_code == 413 else "misjudged"


async def _cut_off(host: str, port: int, body: Body) -> str:
    """Sends a request whose body ends too early, and goes."""
    data = json.dumps(body).encode()
    head = f"POST /v1/ask HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(data)}\r\n\r\n"
    _, writer = await asyncio.open_connection(host, port)
    writer.write(head.encode() + data[: len(data) // 2])
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    return "cut off"
