"""A server in a process of its own, and clients: one after the other, several at once, in turn."""

import asyncio
import contextlib
import itertools
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from experiments import Values
from nq.errors import Error
from nq.questions import read_examples
from nq.records import Example

BLOCKS, MAX_WORDS = 2, 80
TIMEOUT_S, END_S = 120.0, 60.0
EDGE = 100
"""Requests at the beginning and at the end whose memory is compared."""
CLIENTS = 8
JSON = {"Content-Type": "application/json"}
BROKEN = (
    b"",
    b"{",
    b'{"question": "who", "page": "\xff"}',
    b'{"question": 1, "page": []}',
    b'{"question": "", "page": "the lake"}',
    b'{"question": "who", "page": "<body></body>"}',
    b"[" * 10_000,
)
"""Bodies that a server refuses with the status 422."""

Body = Values
"""A request of ``/v1/ask``."""


@dataclass(frozen=True)
class ServerProcess:
    """A running server: where it answers, and the file of what it writes to stderr."""

    url: str
    process: psutil.Process
    log: Path

    def workers(self) -> list[psutil.Process]:
        """Returns the processes of the model."""
        children: list[psutil.Process] = self.process.children()
        return [one for one in children if "# instance" in " ".join(one.cmdline())]

    def memory_mb(self) -> float:
        """Returns the resident memory of all its processes in MB."""
        sizes = [process.memory_info().rss for process in (self.process, *self.process.children())]
        return float(sum(sizes)) / 1e6


@contextlib.contextmanager
def running_server(options: Sequence[str]) -> Iterator[ServerProcess]:
    """Runs a server on a free port for the block; an ``Error`` if it does not start or end."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        with log.open("wb") as stderr:
            command = [sys.executable, "-m", "nq", "serve", "--json", "--port", "0", *options]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr)
        try:
            line = process.stdout.readline() if process.stdout else b""
            if not line:
                raise Error(f"the server has not started: {log.read_text().strip()}")
            yield ServerProcess(json.loads(line)["url"], psutil.Process(process.pid), log)
            process.send_signal(signal.SIGTERM)
            if process.wait(END_S) != 0:
                raise Error(f"the server ended with code {process.returncode}: {log.read_text()}")
        finally:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def short_pages(files: Sequence[str]) -> list[Body]:
    """Returns a request for each question of some files, with the first blocks of its page."""
    examples = read_examples(files, skip_bad=True)
    return [{"question": e.question, "page": _short_page(e), "format": "text"} for e in examples]


def _short_page(example: Example) -> str:
    blocks = [candidate.span for candidate in example.candidates if candidate.top_level]
    texts = (" ".join(example.text(span).split()[:MAX_WORDS]) for span in blocks)
    return "\n\n".join(itertools.islice(filter(None, texts), BLOCKS))


def client(url: str) -> httpx.AsyncClient:
    """Returns a client of a server with as many connections as are needed."""
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(
        base_url=url,
        timeout=TIMEOUT_S,
        limits=limits,
        trust_env=False,
    )


async def ask(http: httpx.AsyncClient, body: Body) -> float:
    """Asks a question; returns the seconds that it took."""
    started = time.perf_counter()
    response = await http.post("/v1/ask", json=body)
    response.raise_for_status()
    return time.perf_counter() - started


async def closed_loop(url: str, bodies: Sequence[Body], clients: int) -> tuple[float, list[float]]:
    """Has some clients ask all questions, each the next one when it has its answer.

    Returns:
        Questions per second, and the seconds of each question.
    """
    left, latencies = iter(bodies), list[float]()

    async def work(http: httpx.AsyncClient) -> None:
        for body in left:
            latencies.append(await ask(http, body))

    async with client(url) as http:
        started = time.perf_counter()
        await asyncio.gather(*(work(http) for _ in range(clients)))
        return len(bodies) / (time.perf_counter() - started), latencies


async def open_loop(url: str, bodies: Sequence[Body], per_s: float, seed: int) -> list[float]:
    """Asks all questions at random times that do not depend on the answers (Poisson arrivals).

    Returns:
        The seconds of each question.
    """
    draw = random.Random(seed)
    tasks = list[asyncio.Task[float]]()
    async with client(url) as http:
        due = time.perf_counter()
        for body in bodies:
            due += draw.expovariate(per_s)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(ask(http, body)))
        return list(await asyncio.gather(*tasks))


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
    wrong = {"lost": 0, "misjudged": 0}
    memory = list[float]()
    numbers = iter(range(requests))
    large = json.dumps({"question": "who", "page": "x" * too_large}).encode()
    async with client(server.url) as http:

        async def send(n: int) -> None:
            body = bodies[n % len(bodies)]
            turn, kind = divmod(n, 3)
            if kind < 2:
                wrong["lost"] += not await _is_answered(http, body)
            elif turn % 3 == 2:
                await _cut_off(server.url, body)
            else:
                broken = BROKEN[turn % len(BROKEN)]
                content, status = (large, 413) if turn % 3 else (broken, 422)
                response = await http.post("/v1/ask", content=content, headers=JSON)
                wrong["misjudged"] += response.status_code != status

        async def work() -> None:
            for n in numbers:
                await send(n)
                memory.append(server.memory_mb())

        await asyncio.gather(*(work() for _ in range(CLIENTS)))
    dead = before - {process.pid for process in server.workers()}
    edge = min(EDGE, requests // 2)
    first_mb = statistics.mean(memory[:edge])
    last_mb = statistics.mean(memory[-edge:])
    return {
        "requests": requests,
        "good": requests - requests // 3,
        "crashes": len(dead) + server.log.read_text().count("Traceback"),
        **wrong,
        "first_mb": first_mb,
        "last_mb": last_mb,
        "memory_ratio": last_mb / first_mb,
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
