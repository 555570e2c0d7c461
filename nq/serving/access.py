"""What every request passes: host, token, security headers, metrics."""

import asyncio
import hmac
import re
import time
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nq.serving.metrics import GONE
from nq.serving.service import Answering, SlowClientError

ASK = "/v1/ask"
PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
"""Files of the page, with their media types, by path."""
ASSETS = "/docs-assets"
OPEN = {*PAGE, "/docs", "/openapi.json", "/healthz", "/readyz"}
"""Paths that need no token, as ``ASSETS``: they tell nothing that is not in this package."""
ENDPOINTS = {ASK, "/metrics", *OPEN}

_STRICT = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
POLICIES = {
    "/": f"{_STRICT}; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:",
    "/docs": f"{_STRICT}; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' data:",
}
"""Content-Security-Policy by path; of others ``_STRICT``."""


class AccessMiddleware:
    """Refuses requests to other hosts or without the token, and counts all."""

    def __init__(self, app: ASGIApp, answering: Answering, token: str | None) -> None:
        config, self._metrics = answering.config, answering.metrics
        self._app, self._config = app, config
        self._token = None if token is None else token.encode()
        names = f"localhost,127.0.0.1,::1,{config.host},{config.allowed_hosts or ''}".lower()
        self._hosts = {*filter(None, names.replace(" ", "").split(","))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, status = time.perf_counter(), GONE
        path, names = scope["path"], {name for name, _ in scope["headers"]}

        async def send_in_time(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                headers["Content-Security-Policy"] = POLICIES.get(path, _STRICT)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                headers.setdefault("Cache-Control", "no-cache" if path in PAGE else "no-store")
                if names >= {b"content-length", b"transfer-encoding"}:  # RFC 9112, 6.1
                    headers["Connection"] = "close"
            try:
                await asyncio.wait_for(send(message), self._config.timeout)
            except TimeoutError:
                raise SlowClientError from None

        try:
            await self._answer(scope, receive, send_in_time)
        except SlowClientError:
            pass  # uvicorn closes the connection
        finally:
            endpoint = path if path in ENDPOINTS else "other"
            self._metrics.requests.labels(endpoint, status).inc()
            self._metrics.seconds.labels(endpoint).observe(time.perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, own_address = scope["path"], (scope["server"] or ["localhost"])[0]
        host = re.sub(r":\d*$", "", Headers(scope=scope).get("host", "")).strip("[]").lower()
        is_open = self._token is None or path in OPEN or path.startswith(f"{ASSETS}/")
        if host not in {*self._hosts, own_address}:  # another site's page, under a name of its own
            text = f"the host {host!r:.80} is not allowed: see --allowed-hosts of nq serve"
            await refusal(421, text)(scope, receive, send)
        elif not (is_open or self._has_token(scope)):
            header = {"WWW-Authenticate": 'Bearer realm="nq"'}
            text = "a token is needed: send the header Authorization: Bearer TOKEN"
            await refusal(401, text, header)(scope, receive, send)
        else:  # the server leaves out the body of an answer to HEAD
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            await self._app({**scope, "method": method}, receive, send)

    def _has_token(self, scope: Scope) -> bool:
        """Returns whether a request has the token, in a time that does not tell how much of it."""
        header = Headers(scope=scope).get("authorization", "")
        scheme, _, token = header.partition(" ")
        sent = token.strip().encode("latin-1")
        return scheme.lower() == "bearer" and hmac.compare_digest(sent, self._token or b"")


def refusal(status: int, error: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Returns an answer that says in one sentence why there is no other one."""
    return JSONResponse({"error": error}, status, headers)
