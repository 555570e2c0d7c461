"""The paths of the server; errors are JSON with one sentence."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPBearer
from fastapi_offline import FastAPIOffline
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from nq import __version__
from nq.serving.access import ASK, ASSETS, PAGE, refusal
from nq.serving.batcher import ScoringError
from nq.serving.config import FILES
from nq.serving.schemas import AskAnswer, AskRequest, Problem
from nq.serving.service import Answering

FOLDER = Path(__file__).parent / "page"
JSON, RETRY = "application/json", {"Retry-After": "1"}
SILENCE_S, MAX_UPLOADS = 10.0, min(128, FILES // 8)
"""Seconds without a byte of a request, and requests that are not complete, all at once."""


def make_app(answering: Answering, has_token: bool) -> FastAPI:
    """Returns the application, to be put behind ``AccessMiddleware``, which checks the token."""
    app: FastAPI = FastAPIOffline(
        docs_url="/docs",
        redoc_url=None,
        static_url=ASSETS,
        title="nq serve",
        version=__version__,
        description="Answers questions from the page that is sent with them.",
    )
    protected: list[Any] = [Depends(HTTPBearer(auto_error=False))] if has_token else []
    config, content = answering.config, {JSON: {"schema": AskRequest.model_json_schema()}}

    @app.post(
        ASK,
        tags=["questions"],
        summary="Answers a question about a page",
        response_model=AskAnswer,
        responses=_problems(408, 413, 415, 422, 500, 503, 504),
        openapi_extra={"requestBody": {"required": True, "content": content}},
        dependencies=protected,
    )
    async def ask(request: Request) -> Response:
        if not answering.is_ready():
            raise HTTPException(503, "the model is not loaded yet", RETRY)
        _check_type(request)
        async with asyncio.timeout(config.timeout):
            body = await _read_body(request, config.max_body_mb * 10**6, answering.uploads)
            if answering.requests >= config.queue:
                text = f"{config.queue} requests are waiting or computed already: send it later"
                raise HTTPException(503, text, RETRY)
            answering.requests += 1
            try:
                answer = await _unless_gone(request, answering.ask(body))
            finally:
                answering.requests -= 1
        return Response(answer, media_type=JSON)

    @app.get(
        "/healthz",
        tags=["operation"],
        summary="Tells whether the server runs, and has no thread that hangs",
        responses=_problems(503),
    )
    async def healthz() -> Response:
        if stuck := answering.stuck():
            return refusal(503, stuck)
        return JSONResponse({"status": "ok"})

    @app.get(
        "/readyz",
        tags=["operation"],
        summary="Tells whether questions can be answered",
        responses=_problems(503),
    )
    async def readyz() -> Response:
        if problem := await answering.problem():
            return refusal(503, problem)
        return JSONResponse({"status": "ready"})

    @app.get(
        "/metrics",
        tags=["operation"],
        summary="Counters and times for Prometheus",
        dependencies=protected,
    )
    async def metrics() -> Response:
        return Response(
            generate_latest(answering.metrics.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4
        )

    for path, (name, media_type) in PAGE.items():
        file = Response((FOLDER / name).read_bytes(), media_type=media_type)
        app.router.routes.append(Route(path, file, methods=["GET"]))

    async def problem(request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            return refusal(*answering.explain(error))
        texts = {
            404: f"nothing is at {request.url.path!r:.80}: /docs describes what is",
            405: f"{request.method} is not possible here: /docs describes what is",
        }
        text = texts.get(error.status_code, str(error.detail))
        return refusal(error.status_code, text, error.headers)

    for kind in HTTPException, TimeoutError, ScoringError, ClientDisconnect, ValueError, Exception:
        app.add_exception_handler(kind, problem)
    return app


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Problem} for status in statuses}


def _check_type(request: Request) -> None:
    """Checks the media type of a request; raises ``HTTPException`` 415.

    Scripts of other sites can send plain text and forms to a server on this machine, but no JSON.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        shown = repr(media_type) if media_type else "no type"
        raise HTTPException(415, f"found {shown:.80}: send Content-Type: {JSON}")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise HTTPException(415, "the request is compressed: send it as it is")


async def _read_body(request: Request, limit: int, uploads: set[asyncio.Timeout]) -> bytes:
    """Returns the body of a request; raises ``HTTPException`` 413 as soon as it is too large.

    Of more than ``MAX_UPLOADS`` the one that is silent for longest ends with 408, as one does that
    is silent for ``SILENCE_S``.
    """
    body, announced = bytearray(), request.headers.get("content-length", "")
    size = int(announced) if announced.isdecimal() else 0
    stream, now = aiter(request.stream()), asyncio.get_running_loop().time
    if len(uploads) >= MAX_UPLOADS:
        uploads.remove(oldest := min(uploads, key=lambda one: one.when() or 0.0))
        if not oldest.expired():
            oldest.reschedule(now())
    uploads.add(silence := asyncio.timeout(SILENCE_S))
    try:
        async with silence:
            while size <= limit and (part := await anext(stream, None)) is not None:
                silence.reschedule(now() + SILENCE_S)
                body += part
                size = max(size, len(body))
    except TimeoutError:
        text = "the rest of the request has not come: send it at once"
        raise HTTPException(408, text, {"Connection": "close"}) from None
    finally:
        uploads.discard(silence)
    if size > limit:
        text = (
            f"the request is larger than {limit} bytes: send a smaller page, or raise --max-body-mb"
        )
        raise HTTPException(413, text)
    return bytes(body)


async def _unless_gone(request: Request, work: Awaitable[bytes]) -> bytes:
    """Returns the result of ``work``, or cancels it and raises when the client goes."""

    async def until_gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, gone = asyncio.ensure_future(work), asyncio.create_task(until_gone())
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)
