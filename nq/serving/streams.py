"""``POST /v1/predict``: lines of records in, lines of predictions out, in order.

A line that cannot be answered gives ``{"line": 3, "error": "…"}`` in its place. The predictions of
the first lines are sent while later lines are still being received.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import orjson
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from nq.serving.lines import Lines

AT_ONCE = 16
"""Records of a stream that wait or are computed; no more are read meanwhile.

A record that is larger than this part of the largest one is the last one that is read until it is
answered, so that a stream keeps no more than two of the largest.
"""
MEDIA_TYPE = "application/jsonl"

Predict = Callable[[bytes, int], Awaitable[bytes]]
"""Returns the prediction for the record in a line, which has a number."""
Explain = Callable[[Exception], str]
"""Returns in one sentence why a record has no prediction."""
Result = asyncio.Future[bytes]


class StreamEndedError(ValueError):
    """No more lines are read; the text says why."""


class Predictions(Response):
    """A response that reads the request's lines while it sends their predictions.

    Args:
        predict: answers a line.
        explain: makes error lines.
        max_bytes: of a line.
        timeout_s: for a prediction after the one before it, and between two parts of the request.
        draining: set when no more lines are to be read.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self,
        predict: Predict,
        explain: Explain,
        max_bytes: int,
        timeout_s: float,
        draining: asyncio.Event,
    ) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._predict, self._explain = predict, explain
        self._max_bytes, self._timeout_s, self._draining = max_bytes, timeout_s, draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        results: asyncio.Queue[tuple[int, Result] | None] = asyncio.Queue(AT_ONCE)
        reading = asyncio.create_task(self._read(receive, results))
        try:
            item = await results.get()
            # not before: a client may wait for the permission to send its body, which reading gives
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            while item is not None:
                line = await self._line(*item) + b"\n"
                await send({"type": "http.response.body", "body": line, "more_body": True})
                item = await results.get()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            _drop(results)

    async def _line(self, number: int, result: Result) -> bytes:
        """Returns the prediction of a line, or its error."""
        try:
            return await asyncio.wait_for(result, self._timeout_s)
        except Exception as error:
            return orjson.dumps({"line": number, "error": self._explain(error)})

    async def _read(
        self, receive: Receive, results: asyncio.Queue[tuple[int, Result] | None]
    ) -> None:
        """Starts a prediction for each line; ``None`` marks the end."""
        lines, number = Lines(self._max_bytes), 0
        try:
            async for part in self._parts(receive):
                for line in lines.add(part):
                    number += 1
                    await self._start(number, line, results)
            for line in lines.end():
                number += 1
                await self._start(number, line, results)
        except ClientDisconnect:
            _drop(results)
        except Exception as error:
            await self._start(number + 1, error, results)
        await results.put(None)

    async def _start(
        self,
        number: int,
        line: bytes | Exception,
        results: asyncio.Queue[tuple[int, Result] | None],
    ) -> None:
        result: Result
        if isinstance(line, Exception):
            result = asyncio.get_running_loop().create_future()
            result.set_exception(line)
        elif line:
            result = asyncio.ensure_future(self._predict(line, number))
        else:
            return
        try:
            await results.put((number, result))
            if isinstance(line, bytes) and len(line) > self._max_bytes // AT_ONCE:
                await asyncio.wait({result})
        except asyncio.CancelledError:
            _cancel(result)
            raise

    async def _parts(self, receive: Receive) -> AsyncIterator[bytes]:
        """Yields the parts of the body.

        Raises:
            ClientDisconnect: the client has gone.
            StreamEndedError: the client is silent, or the server is about to end.
        """
        more = True
        while more:
            message = await self._next_message(receive)
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            yield message.get("body", b"")
            more = message.get("more_body", False)

    async def _next_message(self, receive: Receive) -> Message:
        receiving = asyncio.ensure_future(receive())
        draining = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait(
                {receiving, draining},
                timeout=self._timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if self._draining.is_set():
                raise StreamEndedError(
                    "the server is about to end: send this line and those after it again"
                )
            if not receiving.done():
                raise StreamEndedError(
                    f"nothing was received for {self._timeout_s:g} s: send this line and those "
                    "after it again"
                )
            return receiving.result()
        finally:
            for task in (receiving, draining):
                task.cancel()


def _drop(results: asyncio.Queue[tuple[int, Result] | None]) -> None:
    """Cancels the predictions that nobody will read."""
    while not results.empty():
        if (left := results.get_nowait()) is not None:
            _cancel(left[1])


def _cancel(result: Result) -> None:
    if not result.cancel() and not result.cancelled():
        result.exception()  # otherwise asyncio logs that nobody has asked for it
