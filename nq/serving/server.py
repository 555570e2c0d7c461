"""The process of ``nq serve``: its socket, the processes of the model, signals and draining."""

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from nq import processor
from nq.config import ServeConfig
from nq.errors import Error
from nq.formats.documents import page_from_text
from nq.inference.instances import InstancePool
from nq.inference.load import ScorerSpec
from nq.inference.scorer import Part, windowed
from nq.interruption import REPEAT_S
from nq.serving.app import FILES, make_app
from nq.serving.service import Answering

log = logging.getLogger(__name__)

DRAIN_TIMEOUTS = 3
"""Time limits until draining ends: one for the answer, one for each part of its sending."""
STUCK_END_S = 2
"""Seconds until it ends where nothing is answered any more."""
MAX_CONNECTIONS = min(2048, FILES // 2)
BACKLOG = min(256, FILES // 4)
"""Open connections, and those that the system keeps until the server accepts them."""
ACCEPTS = max(1, BACKLOG // 4)
"""Connections that are accepted at once, before those that are too many are closed."""


def serve(
    spec: ScorerSpec, config: ServeConfig, token: str | None, on_ready: Callable[[str], None]
) -> None:
    """Serves a model until a signal.

    The first signal drains: no more connections are accepted, and the function returns when all
    accepted requests are answered. A second one ends the process. When questions can be answered
    ``on_ready`` receives the URL; clients must send the ``token``, if there is one.

    Raises:
        Error: the address cannot be used, or the model cannot be loaded.
        FileNotFoundError, ValueError: the model is missing or damaged.
    """

    async def run(listener: socket.socket) -> None:
        answering = Answering(spec.model, config)
        server = _Server(make_app(answering, token), answering)

        async def answer() -> None:
            pool = await asyncio.to_thread(_open_pool, spec, config.workers)
            with contextlib.closing(pool), contextlib.closing(answering):
                answering.is_alive = pool.is_alive
                host, port = listener.getsockname()[:2]
                on_ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
                await answering.batcher.run(pool.instances)

        model = asyncio.create_task(answer())
        model.add_done_callback(lambda _: server.stop())  # only a model that fails ends by itself
        signal.set_wakeup_fd(-1)  # which ``nq.interruption`` watches
        await server.serve([listener])
        if server.signal and (server.server_state.tasks or server.server_state.connections):
            os._exit(128 + server.signal)  # the time to drain is over
        if answering.is_alive is None and not model.done():
            os._exit(0)  # nobody waits for the model, but the end of the event loop would
        model.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await model
        if answering.calls:  # nobody waits for them, but the end of the interpreter would
            os._exit(0)

    with contextlib.closing(_listen(config)) as listener:
        asyncio.run(run(listener))


def _listen(config: ServeConfig) -> socket.socket:
    try:
        addresses = socket.getaddrinfo(
            config.host,
            config.port,
            type=socket.SOCK_STREAM,
        )
        family, _, _, _, name = addresses[0]
        return socket.create_server(name[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        where = f"port {config.port} of {config.host}"
        reason = f"cannot listen on {where}: {error.strerror or error}"
        raise Error(f"{reason}: choose another --port or --host") from error


def _open_pool(spec: ScorerSpec, workers: int) -> InstancePool:
    """Starts the processes of a model and has each score windows, so that all is compiled."""
    pool = InstancePool(spec, workers, max(1, len(processor.cores()) // workers))
    example = page_from_text("It rains.").with_question("does it rain")
    one = windowed(example, spec.model.tokenizer, spec.model.windows)
    sizes = [1 << n for n in range((pool.batch_size - 1).bit_length())]
    try:
        for size in (*sizes, pool.batch_size):
            part = Part([one] * size)
            for scores in [pool.submit(part.rows, part.examples) for _ in range(workers)]:
                scores.result()
    except BaseException:
        pool.close()
        raise
    return pool


def _close_silent(connections: set[Any], since: float) -> None:
    """Closes connections without a request in work since ``since``, even with unsent data."""
    for connection in [c for c in connections if c.is_silent() and c.since <= since]:
        connections.discard(connection)
        connection.transport.abort()


class _Connection(H11Protocol):
    """A connection; when there are too many, the half that is silent for longest is closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        if len(self.connections) > MAX_CONNECTIONS:
            others: set[Any] = self.connections
            times = sorted(c.since for c in others if c.is_silent())
            _close_silent(others, times[(len(times) - 1) // 2])

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answers bytes that are not HTTP, unless an earlier answer is being sent."""
        if self.cycle:
            self.cycle.disconnected = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def is_silent(self) -> bool:
        return not self.cycle or self.cycle.response_complete or self.transport.is_closing()


class _Server(uvicorn.Server):
    """Uvicorn server: the first signal drains connections, a second one ends the process.

    A connection without a request in work is closed after the time limit of requests.
    """

    def __init__(self, app: ASGIApp, answering: Answering) -> None:
        is_verbose = log.isEnabledFor(logging.DEBUG)
        self._timeout_s = answering.config.timeout
        config = uvicorn.Config(
            app,
            http=_Connection,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            log_level=None if is_verbose else "error",  # requests that are not HTTP are warnings
            access_log=is_verbose,
            proxy_headers=False,
            server_header=False,
            backlog=ACCEPTS,
            timeout_graceful_shutdown=math.ceil(DRAIN_TIMEOUTS * self._timeout_s),
        )
        super().__init__(config)
        self._answering = answering
        self.signal = 0
        self._first = 0.0
        self._loop = asyncio.get_running_loop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)  # more may wait than asyncio accepts at once

    async def on_tick(self, counter: int) -> bool:
        _close_silent(self.server_state.connections, time.monotonic() - self._timeout_s)
        return await super().on_tick(counter)

    def stop(self) -> None:
        """Ends the server when the accepted requests are answered."""
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Has the event loop handle a signal, in place of uvicorn and ``nq.interruption``."""
        self._loop.call_soon_threadsafe(self._on_signal, sig)

    def _on_signal(self, number: int) -> None:
        if not self.signal:
            self.signal = number
            self._first = time.monotonic()
            self._answering.draining = True
            if self._answering.stuck():
                self.config.timeout_graceful_shutdown = STUCK_END_S
            self.stop()
            log.info("finishing the accepted requests; another signal ends at once")
        elif time.monotonic() - self._first > REPEAT_S:  # else the same Ctrl-C, sent on
            os._exit(128 + number)  # the processes of the model end with this one
