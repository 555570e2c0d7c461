"""The process of ``nq serve``: its socket, the processes of the model, signals and draining."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

import uvicorn
from fastapi import FastAPI

from nq.config import ServeConfig
from nq.formats.documents import page_from_text
from nq.inference import cores
from nq.inference.instances import InstancePool
from nq.inference.load import ScorerSpec
from nq.inference.scorer import feature_rows
from nq.interruption import REPEAT_S, SIGNALS
from nq.preprocess.features import features
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.serving.answering import Answering
from nq.serving.app import Service, make_app
from nq.serving.batcher import Batcher
from nq.serving.gate import Gate
from nq.serving.listener import BACKLOG, address, listen

log = logging.getLogger(__name__)

OnReady = Callable[[str], None]
"""Receives the URL of the server when it can answer questions."""


def serve(spec: ScorerSpec, config: ServeConfig, token: str | None, on_ready: OnReady) -> None:
    """Serves a model until a signal.

    The first signal drains: no more connections are accepted, and the function returns when all
    accepted requests are answered. A second one ends the process.

    Args:
        spec: the model.
        config: address and limits.
        token: which clients must send; ``None`` for no token.
        on_ready: is called once.

    Raises:
        Error: the address cannot be used, or the model cannot be loaded.
        FileNotFoundError, ValueError: the model is missing or of no use.
    """
    tokenizer = load_tokenizer(spec.model.folder, spec.model.windows.compat)
    with contextlib.closing(listen(config)) as listener:
        model = _Model(spec, tokenizer, config, lambda: on_ready(address(listener)))
        app = make_app(model.service, token is not None, model.lifespan)
        service = model.service
        gate = Gate(app, config, service.metrics, token, service.is_ready)
        server = model.server = _Server(gate, service.draining)
        asyncio.run(server.serve([listener]))
    if model.failure is not None:
        raise model.failure


class _Model:
    """Loads the model beside the server, which tells meanwhile that it is not ready.

    Args:
        spec, tokenizer, config: see ``Answering``.
        on_ready: is called when the model is loaded.

    Attributes:
        service: gets what answers questions.
        server: is told to end if the model cannot be loaded.
        failure: why it cannot.
    """

    server: _Server

    def __init__(
        self,
        spec: ScorerSpec,
        tokenizer: Tokenizer,
        config: ServeConfig,
        on_ready: Callable[[], None],
    ) -> None:
        self.spec, self.tokenizer, self.config = spec, tokenizer, config
        self.service, self._on_ready = Service(config), on_ready
        self.failure: Exception | None = None

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        """Loads the model and has batches scored until the application ends."""
        working = asyncio.create_task(self._work())
        try:
            yield
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def _work(self) -> None:
        """Loads the model and has batches scored; ends the server if either is impossible."""
        try:
            pool = await _in_daemon_thread(self._open_pool)
            with contextlib.closing(pool):
                await self._score(pool)
        except Exception as error:
            self.failure = error
            self.server.should_exit = True

    async def _score(self, pool: InstancePool) -> None:
        """Has batches scored until it is cancelled."""
        batcher = Batcher(pool, len(pool), self.config.batch_size, self.service.metrics)
        answering = Answering(self.spec.model, self.tokenizer, self.config, batcher)
        with contextlib.closing(answering):
            self.service.answering = answering
            self._on_ready()
            await batcher.run()

    def _open_pool(self) -> InstancePool:
        """Starts the processes and has each score a window, so that all is compiled."""
        workers = self.config.workers
        threads = max(1, len(cores.available()) // workers)
        pool = InstancePool(self.spec, workers, threads)
        example = page_from_text("It rains.").with_question("does it rain")
        rows = feature_rows(features(example, self.tokenizer, self.spec.model.windows))
        try:
            for future in [pool.submit(rows, [example]) for _ in range(workers)]:
                future.result()
        except BaseException:
            pool.close()
            raise
        return pool


class _Server(uvicorn.Server):
    """Uvicorn, with a first signal that drains and a second one that ends the process.

    Args:
        app: the application.
        draining: is set with the first signal.
    """

    def __init__(self, app: Gate, draining: asyncio.Event) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="on",
            loop="asyncio",
            log_config=None,
            access_log=log.isEnabledFor(logging.DEBUG),
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
        )
        super().__init__(config)
        self._draining, self._first = draining, 0.0

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles signals in the event loop, in place of uvicorn and ``nq.interruption``."""
        loop = asyncio.get_running_loop()
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _on_signal(self, number: int) -> None:
        if not self._draining.is_set():
            self._first = time.monotonic()
            self._draining.set()
            self.should_exit = True
            log.info("finishing the accepted requests; another signal ends at once")
        elif time.monotonic() - self._first > REPEAT_S:  # else the same Ctrl-C, sent on
            os._exit(128 + number)  # the processes of the model end with this one


async def _in_daemon_thread(function: Callable[[], InstancePool]) -> InstancePool:
    """Returns the result of a function; the process may end before the function does."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[InstancePool] = loop.create_future()

    def deliver(pool: InstancePool | None, error: Exception | None) -> None:
        if result.cancelled():
            if pool is not None:
                pool.close()
        elif pool is not None:
            result.set_result(pool)
        elif error is not None:
            result.set_exception(error)

    def run() -> None:
        pool, failure = None, None
        try:
            pool = function()
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the process ends
            loop.call_soon_threadsafe(deliver, pool, failure)

    threading.Thread(target=run, name="nq-loading", daemon=True).start()
    return await result
