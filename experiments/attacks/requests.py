"""Many requests to ``nq serve``, of which a third is broken, too large or cut off."""

import argparse
import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

from experiments.attacks import Row
from experiments.serving.load import Body, ServerProcess, client, running_server, short_pages
from nq.bundle import bundled_sample
from nq.config import ServeConfig

EDGE = 100
"""Requests at the beginning and at the end whose memory is compared."""
CLIENTS = 8
LIMITS = {"crashes": 0, "lost": 0, "misjudged": 0, "memory_ratio": 1.05}
JSON = {"Content-Type": "application/json"}
BODIES = (
    (b"", 422),
    (b"{", 422),
    (b'{"question": "who", "page": "\xff"}', 422),
    (b'{"question": 1, "page": []}', 422),
    (b'{"question": "", "page": "the lake"}', 422),
    (b'{"question": "who", "page": "<body></body>"}', 422),
    (b"[" * 10_000, 422),
)
"""Broken bodies with the status that they should get."""


async def soak(
    server: ServerProcess, bodies: Sequence[Body], requests: int, too_large: int
) -> dict[str, float]:
    """Sends requests, of which every third is not good, and returns what became of them.

    A body that is too large has ``too_large`` bytes.

    Returns:
        The numbers of ``requests`` and of ``good`` ones, of ``crashes`` (processes of the server
        that ended, or tracebacks in its log), of good requests that ``lost`` their answer, and of
        others that got a wrong status (``misjudged``); the mean memory during the first and the
        last ``EDGE`` requests.
    """
    before = {process.pid for process in server.workers()}
    wrong, memory = Counter[str](), list[float]()
    numbers = iter(range(requests))
    large = json.dumps({"question": "who", "page": "x" * too_large}).encode()
    async with client(server.url) as http:

        async def work() -> None:
            for n in numbers:
                body, kind = bodies[n % len(bodies)], n // 3 % 3
                if n % 3 < 2:
                    wrong["lost"] += not await _is_answered(http, body)
                elif kind == 2:
                    await _cut_off(server.url, body)
                else:
                    content, status = (large, 413) if kind else BODIES[n // 3 % len(BODIES)]
                    response = await http.post("/v1/ask", content=content, headers=JSON)
                    wrong["misjudged"] += response.status_code != status
                memory.append(server.memory_mb())

        await asyncio.gather(*(work() for _ in range(CLIENTS)))
    dead = before - {process.pid for process in server.workers()}
    edge = min(EDGE, requests // 2)
    first_mb, last_mb = sum(memory[:edge]) / edge, sum(memory[-edge:]) / edge
    return {
        **{"requests": requests, "good": requests - requests // 3},
        "crashes": len(dead) + server.log.read_text().count("Traceback"),
        **{name: wrong[name] for name in ("lost", "misjudged")},
        **{"first_mb": first_mb, "last_mb": last_mb, "memory_ratio": last_mb / first_mb},
    }


async def _is_answered(http: httpx.AsyncClient, body: Body) -> bool:
    try:
        response = await http.post("/v1/ask", json=body)
        return response.status_code == 200 and response.json()["question"] == body["question"]
    except (httpx.HTTPError, ValueError):
        return False


async def _cut_off(url: str, body: Body) -> None:
    """Sends a request whose body ends too early, and goes."""
    address = httpx.URL(url)
    data = json.dumps(body).encode()
    head = f"POST /v1/ask HTTP/1.1\r\nHost: {address.netloc.decode()}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(head.encode() + data[: len(data) // 2])
    await writer.drain()
    writer.close()
    await writer.wait_closed()


def rows(args: argparse.Namespace, folder: Path, rng: random.Random) -> Iterator[Row]:
    """Sends ``args.requests`` requests to a server."""
    bodies = short_pages([str(bundled_sample())])
    with running_server([]) as server:
        too_large = ServeConfig().max_body_mb * 10**6
        figures = asyncio.run(soak(server, bodies, args.requests, too_large))
    for name, limit in LIMITS.items():
        is_right = figures[name] <= limit
        yield Row(name.replace("_", " "), "nq serve", is_right, f"{figures[name]:g}")
