"""The application of the server: its paths, and the checks that every request passes first.

Errors are JSON with one sentence.
"""

import asyncio
import hmac
import re
import resource
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi_offline import FastAPIOffline
from prometheus_client import Counter, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nq import __version__
from nq.errors import Error
from nq.serving.batcher import ScoringError
from nq.serving.schemas import AskAnswer, AskRequest, Problem
from nq.serving.service import GONE, Answering, SlowClientError

ASK = "/v1/ask"
PAGE_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
"""Files of the page, with their media types, by path."""
ASSETS = "/docs-assets"
ENDPOINTS = {ASK, "/metrics", *PAGE_FILES, "/docs", "/openapi.json", "/healthz", "/readyz"}

_STRICT = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
POLICIES = {
    "/": f"{_STRICT}; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:",
    "/docs": f"{_STRICT}; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' data:",
}
"""Content-Security-Policy by path; of others ``_STRICT``."""

FOLDER = Path(__file__).parent / "page"
JSON = "application/json"
RETRY = {"Retry-After": "1"}
PROBLEM: dict[str, Any] = {"model": Problem}
FILES, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
"""Files that the server may open."""
SILENCE_S = 10.0
MAX_UPLOADS = min(128, FILES // 8)
"""Seconds without a byte of a request, and requests that are not complete, all at once."""


def make_app(answering: Answering, token: str | None) -> ASGIApp:
    """Returns the application; clients must send the ``token``, if there is one."""
    app: FastAPI = FastAPIOffline(
        docs_url="/docs",
        redoc_url=None,
        static_url=ASSETS,
        title="nq serve",
        version=__version__,
        description="Answers questions from the page that is sent with them.",
    )
    config = answering.config
    protected = [Depends(_token_check(token))] if token else []
    content = {JSON: {"schema": AskRequest.model_json_schema()}}

    @app.post(
        ASK,
        response_model=AskAnswer,
        responses=dict.fromkeys((408, 413, 415, 422, 500, 503, 504), PROBLEM),
        openapi_extra={"requestBody": {"required": True, "content": content}},
        dependencies=protected,
    )
    async def ask(request: Request) -> Response:
        """Answers a question about a page."""
        if answering.is_alive is None or answering.draining:
            raise HTTPException(503, "the model is not loaded yet", RETRY)
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != JSON:  # scripts of other sites can send text and forms, but no JSON
            shown = repr(media_type) if media_type else "no type"
            raise HTTPException(415, f"found {shown:.80}: send Content-Type: {JSON}")
        if request.headers.get("content-encoding", "identity") != "identity":
            raise HTTPException(415, "the request is compressed: send it as it is")
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

    @app.get("/healthz", responses={503: PROBLEM})
    async def healthz() -> Response:
        """Tells whether the server runs, and has no thread that hangs."""
        if stuck := answering.stuck():
            return refusal(503, stuck)
        return JSONResponse({"status": "ok"})

    @app.get("/readyz", responses={503: PROBLEM})
    async def readyz() -> Response:
        """Tells whether questions can be answered."""
        if problem := await answering.problem():
            return refusal(503, problem)
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", dependencies=protected)
    async def metrics() -> Response:
        """Returns counters and times for Prometheus."""
        return Response(generate_latest(answering.metrics), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    for path, (name, media_type) in PAGE_FILES.items():
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

    kinds = HTTPException, TimeoutError, ScoringError, ClientDisconnect, ValueError, Error
    for kind in (*kinds, Exception):
        app.add_exception_handler(kind, problem)
    return Access(app, answering)


def _token_check(token: str) -> Callable[..., Awaitable[None]]:
    """Returns a dependency that refuses requests without the token."""
    bearer = Depends(HTTPBearer(auto_error=False))

    async def check(sent: HTTPAuthorizationCredentials | None = bearer) -> None:
        shown = sent.credentials.strip() if sent else ""
        # compared in a time that does not tell how much of the token is right
        if not hmac.compare_digest(shown.encode("latin-1"), token.encode()):
            header = {"WWW-Authenticate": 'Bearer realm="nq"'}
            text = "a token is needed: send the header Authorization: Bearer TOKEN"
            raise HTTPException(401, text, header)

    return check


class Access:
    """Refuses requests to other hosts, adds security headers, counts all requests."""

    def __init__(self, app: ASGIApp, answering: Answering) -> None:
        config = answering.config
        self._timeout_s = config.timeout
        names = f"localhost,127.0.0.1,::1,{config.host},{config.allowed_hosts or ''}".lower()
        self._hosts = {*filter(None, names.replace(" ", "").split(","))}
        self._app = CORSMiddleware(
            app,
            config.allow_origin,
            allow_methods=("GET", "HEAD", "POST"),
            allow_headers=("Authorization",),
            expose_headers=("Retry-After",),
            # a site on the internet asks a server in a private network; not any site may
            allow_private_network="*" not in config.allow_origin,
        )
        registry = answering.metrics
        self._requests = Counter(
            "nq_requests", "Answered requests.", ["endpoint", "status"], registry=registry
        )
        self._seconds = Histogram(
            "nq_request_seconds", "Seconds of a request.", ["endpoint"], registry=registry
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        status = GONE
        path = scope["path"]
        sent = Headers(scope=scope)

        async def send_in_time(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                headers["Content-Security-Policy"] = POLICIES.get(path, _STRICT)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                caching = "no-cache" if path in PAGE_FILES else "no-store"
                headers.setdefault("Cache-Control", caching)
                if "content-length" in sent and "transfer-encoding" in sent:  # RFC 9112, 6.1
                    headers["Connection"] = "close"
            try:
                await asyncio.wait_for(send(message), self._timeout_s)
            except TimeoutError:
                raise SlowClientError from None

        answer: ASGIApp = self._app
        host = re.sub(r":\d*$", "", sent.get("host", "")).strip("[]").lower()
        if host not in {*self._hosts, scope["server"][0]}:
            # another site's page, under its own name
            text = f"the host {host!r:.80} is not allowed: see --allowed-hosts of nq serve"
            answer = refusal(421, text)
        elif scope["method"] == "HEAD":  # the server leaves out the body of the answer
            scope = {**scope, "method": "GET"}
        try:
            await answer(scope, receive, send_in_time)
        except SlowClientError:
            pass  # uvicorn closes the connection
        finally:
            endpoint = path if path in ENDPOINTS else "other"
            self._requests.labels(endpoint, status).inc()
            self._seconds.labels(endpoint).observe(time.perf_counter() - started)


def refusal(status: int, error: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Returns an answer that says in one sentence why there is no other one."""
    return JSONResponse({"error": error}, status, headers)


async def _read_body(request: Request, limit: int, uploads: set[asyncio.Timeout]) -> bytes:
    """Returns the body of a request; raises ``HTTPException`` 413 as soon as it is too large.

    Of more than ``MAX_UPLOADS`` the one that is silent for longest ends with 408, as one does that
    is silent for ``SILENCE_S``.
    """
    body = bytearray()
    size = int(request.headers.get("content-length", 0))
    stream = aiter(request.stream())
    now = asyncio.get_running_loop().time
    if len(uploads) >= MAX_UPLOADS:
        oldest = min(uploads, key=lambda one: one.when() or 0.0)
        uploads.remove(oldest)
        if not oldest.expired():
            oldest.reschedule(now())
    silence = asyncio.timeout(SILENCE_S)
    uploads.add(silence)
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
        advice = "send a smaller page, or raise --max-body-mb"
        raise HTTPException(413, f"the request is larger than {limit} bytes: {advice}")
    return bytes(body)


async def _unless_gone(request: Request, work: Awaitable[bytes]) -> bytes:
    """Returns the result of ``work``, or cancels it and raises when the client goes."""

    async def until_gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working = asyncio.ensure_future(work)
    gone = asyncio.create_task(until_gone())
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)
