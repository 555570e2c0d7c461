"""Hostile clients of ``nq serve``, beside which small requests must be answered.

A third of them sends Word documents that expand, a third pages of 1 to 6 MB, each the next one when
it has its answer; a third sends its requests a byte at a time. All have the same address.
"""

import argparse
import asyncio
import base64
import contextlib
import io
import itertools
import json
import random
import zipfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from experiments.attacks import Row
from experiments.serving.load import Body, client, running_server, short_pages
from nq.bundle import bundled_sample

CLIENTS, PAUSE_S, WARMUP = 24, 1.0, 4
"""Hostile clients, seconds from one small request to the next, and small ones that do not count."""
NAMESPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
JSON = {"Content-Type": "application/json"}


def word_document(body: str, padding: int = 0) -> str:
    """Returns a Word document in base64, which has bytes that do not compress."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        xml = f'<w:document xmlns:w="{NAMESPACE}"><w:body>{body}</w:body></w:document>'
        archive.writestr("word/document.xml", xml)
        archive.writestr("padding", random.Random(1).randbytes(padding))
    return base64.b64encode(data.getvalue()).decode()


def hostile_bodies() -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Returns requests with Word documents of 8 and of 400 kB, others with pages of 1 to 6 MB."""
    paragraph = "<w:p><w:r><w:t>lake</w:t></w:r></w:p>"
    files = word_document("<w:p/>" * 390_000), word_document(paragraph * 150_000, 300_000)
    text = "\n\n".join(f"Lake {n} is deep, old and cold in the winter." for n in range(120_000))
    html = "".join(f"<p>Lake <b>{n}</b> is deep.</p>" for n in range(200_000))
    pages = [source[: mb * 10**6] for mb in (1, 2, 3, 4, 6) for source in (text, html)]
    return (
        [json.dumps({"question": "who", "pages": [{"data": file}]}).encode() for file in files],
        [json.dumps({"question": "who", "page": page}).encode() for page in pages],
    )


async def attack(http: httpx.AsyncClient, bodies: Sequence[bytes], number: int) -> None:
    """Sends requests until it is cancelled, whatever becomes of them."""
    for body in itertools.islice(itertools.cycle(bodies), number, None):
        with contextlib.suppress(httpx.HTTPError):
            await http.post("/v1/ask", content=body, headers=JSON)


async def attack_slowly(http: httpx.AsyncClient, body: bytes) -> None:
    """Sends requests until it is cancelled, a byte each second."""

    async def slow() -> AsyncIterator[bytes]:
        for number in range(len(body)):
            yield body[number : number + 1]
            await asyncio.sleep(1)

    while True:
        with contextlib.suppress(httpx.HTTPError):
            await http.post("/v1/ask", content=slow(), headers=JSON)


async def ask_steadily(
    http: httpx.AsyncClient, bodies: Sequence[Body], requests: int
) -> tuple[list[float], list[str]]:
    """Sends small requests at fixed times; returns the seconds of all and the errors of some."""
    seconds, errors = list[float](), list[str]()

    async def ask(body: Body) -> None:
        started = asyncio.get_running_loop().time()
        try:
            response = await http.post("/v1/ask", json=body)
            if response.status_code != 200:
                errors.append(f"{response.status_code} {response.text}")
        except httpx.HTTPError as error:
            errors.append(repr(error))
        seconds.append(asyncio.get_running_loop().time() - started)

    async with asyncio.TaskGroup() as group:
        for body in itertools.islice(itertools.cycle(bodies), requests):
            group.create_task(ask(body))
            await asyncio.sleep(PAUSE_S)
    return seconds, errors


async def measure(url: str, small: Sequence[Body], requests: int) -> dict[str, Any]:
    """Returns seconds and errors of small requests, first alone, then beside hostile clients."""
    results: dict[str, Any] = {}
    documents, pages = hostile_bodies()
    async with client(url) as http, client(url) as other:
        await ask_steadily(http, small, WARMUP)
        results["none"] = await ask_steadily(http, small, requests)
        hostile = [
            attack(other, bodies, n) for n in range(CLIENTS // 3) for bodies in (documents, pages)
        ]
        hostile += [attack_slowly(other, documents[0]) for _ in range(CLIENTS // 3)]
        tasks = [asyncio.create_task(one) for one in hostile]
        await ask_steadily(http, small, WARMUP)
        results[f"{CLIENTS} hostile clients"] = await ask_steadily(http, small, requests)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return results


def rows(args: argparse.Namespace, folder: Path, rng: random.Random) -> Iterator[Row]:
    """Sends ``args.small`` small requests to a server that is quiet, and as many under load."""
    small = short_pages([str(bundled_sample())])
    with running_server([]) as server:
        results = asyncio.run(measure(server.url, small, args.small))
    for name, (seconds, errors) in results.items():
        p50_s, p95_s = np.percentile(seconds, (50, 95))
        text = f"{len(errors)} of {len(seconds)} failed, p50 {p50_s:.3f} s, p95 {p95_s:.3f} s"
        text += f", the first: {errors[0]:.120}" if errors else ""
        yield Row(name, "small requests", not errors, text, max(seconds))
