"""The paths of the server; errors are JSON with one sentence."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPBearer
from fastapi_offline import FastAPIOffline
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from nq import __version__
from nq.config import ServeConfig
from nq.serving.answering import Answering
from nq.serving.batcher import ScoringError
from nq.serving.gate import ASSETS, GONE, refusal
from nq.serving.metrics import Metrics
from nq.serving.requests import check_type, read_body, unless_gone
from nq.serving.schemas import AskAnswer, AskRequest, Problem
from nq.serving.streams import MEDIA_TYPE, Predictions

log = logging.getLogger(__name__)

PAGE = Path(__file__).parent / "page"
JSON_TYPES = ("application/json",)
LINES_TYPES = (MEDIA_TYPE, "application/x-ndjson", "application/x-jsonlines", "application/json")
QUESTIONS: list[str | Enum] = ["questions"]
OPERATION: list[str | Enum] = ["operation"]

Lifespan = Callable[[FastAPI], contextlib.AbstractAsyncContextManager[None]]


class Service:
    """What the paths share.

    Args:
        config: limits.

    Attributes:
        metrics: of this server.
        answering: answers questions; ``None`` until the model is loaded.
        draining: set when the server is about to end.
    """

    def __init__(self, config: ServeConfig) -> None:
        self.config, self.metrics = config, Metrics()
        self.answering: Answering | None = None
        self.draining = asyncio.Event()

    def is_ready(self) -> bool:
        """Returns whether questions can be answered."""
        return self.answering is not None and not self.draining.is_set()

    def explain(self, error: Exception) -> tuple[int, str]:
        """Returns status and text of an error; one that nobody expects is logged."""
        if isinstance(error, TimeoutError):
            return 504, (
                f"no answer within {self.config.timeout:g} s: send a shorter page, or start "
                "nq serve with a higher --timeout"
            )
        if isinstance(error, ScoringError):
            return 500, f"the model has not answered: {error}"
        if isinstance(error, ValueError):
            return 422, " ".join(str(error).split())
        log.error("unexpected error", exc_info=error)
        return 500, "internal error, which the log of the server describes"


def make_app(service: Service, has_token: bool, lifespan: Lifespan | None = None) -> FastAPI:
    """Returns the application, to be put behind a ``Gate``.

    Args:
        service: answers questions.
        has_token: whether clients must send a token, which the gate checks.
        lifespan: of the application.
    """
    app: FastAPI = FastAPIOffline(
        docs_url="/docs",
        redoc_url=None,
        static_url=ASSETS,
        title="nq serve",
        version=__version__,
        description="Answers questions from the page that is sent with them.",
        lifespan=lifespan,
    )
    protected: list[Any] = [Depends(HTTPBearer(auto_error=False))] if has_token else []
    _add_answering(app, service, protected)
    _add_probes(app, service, protected)
    _add_page(app)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(Exception, _internal_problem)
    return app


def _add_answering(app: FastAPI, service: Service, protected: list[Any]) -> None:
    config = service.config

    @app.post(
        "/v1/ask",
        tags=QUESTIONS,
        summary="Answers a question about a page",
        response_model=AskAnswer,
        responses=_problems(413, 415, 422, 500, 503, 504),
        openapi_extra=_body({kind: AskRequest.model_json_schema() for kind in JSON_TYPES}),
        dependencies=protected,
    )
    async def ask(request: Request) -> Response:
        check_type(request, JSON_TYPES)
        try:
            async with asyncio.timeout(config.timeout):
                body = await read_body(request, config.max_body_bytes)
                answer = await unless_gone(request, _answering(service).ask(body))
        except ClientDisconnect:
            return refusal(GONE, "the client has gone")
        except HTTPException:
            raise
        except Exception as error:
            return refusal(*service.explain(error))
        return Response(answer, media_type="application/json")

    @app.post(
        "/v1/predict",
        tags=QUESTIONS,
        summary="Answers records of questions and pages, line by line",
        description="A line for each record that is not blank: a prediction in NQ's evaluation "
        'format, or {"line": N, "error": "…"}.',
        response_class=Response,
        responses={
            200: {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}},
            **_problems(415, 503),
        },
        openapi_extra=_body({MEDIA_TYPE: {"type": "string"}}),
        dependencies=protected,
    )
    async def predict(request: Request) -> Response:
        check_type(request, LINES_TYPES)
        return Predictions(
            _answering(service).predict,
            lambda error: service.explain(error)[1],
            config.max_body_bytes,
            config.timeout,
            service.draining,
        )


def _add_probes(app: FastAPI, service: Service, protected: list[Any]) -> None:
    @app.get("/healthz", tags=OPERATION, summary="Tells whether the server runs")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get(
        "/readyz",
        tags=OPERATION,
        summary="Tells whether questions can be answered",
        responses=_problems(503),
    )
    async def readyz() -> Response:
        if service.is_ready():
            return JSONResponse({"status": "ready"})
        return refusal(503, "the model is not loaded yet, or the server is about to end")

    @app.get(
        "/metrics",
        tags=OPERATION,
        summary="Counters and times for Prometheus",
        dependencies=protected,
    )
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _add_page(app: FastAPI) -> None:
    files = {
        "/": ("index.html", "text/html"),
        "/page.css": ("page.css", "text/css"),
        "/page.js": ("page.js", "text/javascript"),
    }
    for path, (name, media_type) in files.items():
        answer = _file(PAGE / name, media_type)
        app.add_api_route(path, answer, methods=["GET"], include_in_schema=False)


def _file(path: Path, media_type: str) -> Callable[[], Awaitable[Response]]:
    """Returns what answers a request for a file of the page."""
    content = path.read_bytes()

    async def answer() -> Response:
        return Response(content, media_type=f"{media_type}; charset=utf-8")

    return answer


def _answering(service: Service) -> Answering:
    if service.answering is None:
        raise HTTPException(503, "the model is not loaded yet")
    return service.answering


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Problem} for status in statuses}


def _body(schemas: dict[str, dict[str, Any]]) -> dict[str, Any]:
    content = {kind: {"schema": schema} for kind, schema in schemas.items()}
    return {"requestBody": {"required": True, "content": content}}


async def _http_problem(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    texts = {
        404: f"nothing is at {request.url.path!r:.80}: /docs describes what is",
        405: f"{request.method} is not possible here: /docs describes what is",
    }
    text = texts.get(error.status_code, str(error.detail))
    return refusal(error.status_code, text, dict(error.headers or {}))


async def _internal_problem(_request: Request, _error: Exception) -> Response:
    return refusal(500, "internal error, which the log of the server describes")
