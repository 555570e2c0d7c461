"""What a request must be before it is read, its body, and whether its client is still there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request


async def read_body(request: Request, limit: int) -> bytes:
    """Returns the body of a request, of which no more than ``limit`` bytes are read.

    Raises:
        HTTPException: 413, the body is larger.
        ClientDisconnect: the client has gone.
    """
    error = HTTPException(
        413,
        f"the request is larger than {limit} bytes: send a smaller page, or start nq serve with a "
        "higher --max-body-mb",
    )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise error
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise error
    return bytes(body)


async def unless_gone(request: Request, work: Awaitable[bytes]) -> bytes:
    """Returns the result of ``work``, which is cancelled when the client goes.

    Raises:
        ClientDisconnect: the client has gone.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_wait_until_gone(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def check_type(request: Request, expected: tuple[str, ...]) -> None:
    """Checks the media type of a request.

    Scripts of other sites can send plain text and forms to a server on this machine, but no JSON.

    Raises:
        HTTPException: 415, it has another type, or is compressed.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in expected:
        shown = repr(media_type) if media_type else "no type"
        raise HTTPException(415, f"found {shown:.80}: send Content-Type: {expected[0]}")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise HTTPException(415, "the request is compressed: send it as it is")
