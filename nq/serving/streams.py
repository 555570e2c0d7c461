"""``POST /v1/predict``: lines of records in, lines of predictions out, in order.

A line that cannot be answered gives ``{"line": 3, "error": "…"}`` in its place. The predictions of
the first lines are sent while later lines are still being received.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import orjson
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nq.formats.lines import BOM
from nq.serving.answering import Answering

AT_ONCE = 16
"""Records of a stream that wait or are computed; no more are read meanwhile.

A record that is larger than this part of the largest one is the last one that is read until it is
answered, so that a stream keeps no more than two of the largest.
"""
MEDIA_TYPE = "application/jsonl"

Results = asyncio.Queue[tuple[int, asyncio.Task[bytes]] | None]


class Predictions(Response):
    """A response that reads the request's lines while it sends their predictions.

    A prediction may take as long as the limit of the server after the one before it, and so may a
    record after the moment when the server could read it.
    """

    media_type = MEDIA_TYPE

    def __init__(self, answering: Answering) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._answering, self._timeout_s = answering, answering.config.timeout
        self._max_bytes, self._read_at = answering.config.max_body_bytes, time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        results: Results = asyncio.Queue(AT_ONCE)
        tasks = set[asyncio.Task[bytes]]()
        reading = asyncio.create_task(self._read(receive, results, tasks))
        try:
            item = await results.get()
            # not before: a client may wait for the permission to send its body, which reading gives
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            while item is not None:
                number, task = item
                try:
                    line = await asyncio.wait_for(task, self._timeout_s)
                except TimeoutError as error:
                    line = self._problem(number, error)
                await send({"type": "http.response.body", "body": line + b"\n", "more_body": True})
                item = await results.get()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            for one in (reading, *tasks):
                one.cancel()

    async def _read(
        self, receive: Receive, results: Results, tasks: set[asyncio.Task[bytes]]
    ) -> None:
        """Starts a prediction for each line; ``None`` marks the end."""
        number = 0

        async def start(line: bytes | Exception) -> None:
            task = asyncio.create_task(self._line(number, line))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            await results.put((number, task))
            if isinstance(line, bytes) and len(line) > self._max_bytes // AT_ONCE:
                await asyncio.wait({task})

        try:
            async for line in cut(self._parts(receive), self._max_bytes):
                number += 1
                if line:
                    await start(line)
                    self._read_at = time.monotonic()
        except ClientDisconnect:
            while not results.empty():
                results.get_nowait()
        except Exception as error:
            number += 1
            await start(error)
        await results.put(None)

    async def _line(self, number: int, line: bytes | Exception) -> bytes:
        """Returns the prediction of a line, or its error."""
        try:
            if isinstance(line, Exception):
                raise line
            return await self._answering.predict(line, number)
        except Exception as error:
            return self._problem(number, error)

    def _problem(self, number: int, error: Exception) -> bytes:
        return orjson.dumps({"line": number, "error": self._answering.explain(error)[1]})

    async def _parts(self, receive: Receive) -> AsyncIterator[bytes]:
        """Yields the parts of the body.

        Raises:
            ClientDisconnect: the client has gone.
            ValueError: no record comes, or the server is about to end; the text says which.
        """
        draining = asyncio.create_task(self._answering.draining.wait())
        again = "send this line and those after it again"
        more = True
        try:
            while more:
                receiving = asyncio.ensure_future(receive())
                left_s = max(0, self._read_at + self._timeout_s - time.monotonic())
                await asyncio.wait(
                    {receiving, draining}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                if draining.done():
                    raise ValueError(f"the server is about to end: {again}")
                if not (receiving.done() and left_s):
                    raise ValueError(f"no record was received for {self._timeout_s:g} s: {again}")
                message = receiving.result()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                yield message.get("body", b"")
                more = message.get("more_body", False)
        finally:
            receiving.cancel()
            draining.cancel()


async def cut(parts: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes | ValueError]:
    """Yields the lines of a body that comes in parts, stripped.

    Args:
        parts: of the body.
        max_bytes: of a line; a longer one is not kept, and an error in its place.
    """
    line, size, is_first = bytearray(), 0, True

    def whole() -> bytes | ValueError:
        if size > max_bytes:
            return ValueError(
                f"too large: a line of {size} bytes, the limit is {max_bytes}; see --max-body-mb"
            )
        return bytes(line.removeprefix(BOM) if is_first else line).strip()

    async for part in parts:
        for i, piece in enumerate(part.split(b"\n")):
            if i:
                yield whole()
                line, size, is_first = bytearray(), 0, False
            size += len(piece)
            if size <= max_bytes:
                line += piece
            else:
                line.clear()
    if size:
        yield whole()
