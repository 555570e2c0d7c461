"""Requests in, answers out: all work for a question except the model's, in a few threads.

``nq ask`` and ``nq answer`` have the same steps and the same JSON.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import orjson
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, disable_created_metrics
from starlette.requests import ClientDisconnect

from nq.answers import Page
from nq.collection import select_page
from nq.config import ServeConfig
from nq.errors import Error
from nq.inference.scorer import windowed
from nq.model.model import Model
from nq.page_process import PageProcess
from nq.postprocess.decision import decide
from nq.reader import make_answer
from nq.records import Windowed
from nq.serving.batcher import Batcher, ScoringError
from nq.serving.schemas import parse_request

log = logging.getLogger(__name__)

PROBE = b'{"question": "does it rain", "page": "It rains."}'
PROBE_S = 10.0
"""A question that shows whether the model answers, if it answered none for ``PROBE_S``."""
READ_SHARE = 1 / 8
MIN_READ_S = 1.0
"""A page is read in this part of the time limit, or in ``MIN_READ_S``."""
QUICK_BYTES = 65_536
"""A request with a single text or HTML is read in about a tenth of a second up to this size."""
THREADS = 4
"""Threads that wait for the two processes that read pages, or decide; more would only compete for
Python's lock."""

GONE = 499
"""Status of a request whose client had gone before the answer."""

T = TypeVar("T")


class SlowClientError(Exception):
    """A client does not read its answer."""


class Answering:
    """Answers requests.

    Attributes:
        is_alive: tells whether a process of the model runs; ``None`` until the model is loaded.
        draining: whether the server is about to end.
        requests: that are complete, and wait or are computed.
        uploads: for each request that is not complete, how long it may be silent.
        calls: what its threads do, and since when, by the clock of the event loop.
    """

    def __init__(self, model: Model, config: ServeConfig) -> None:
        self._model = model
        self._tokenizer = model.tokenizer
        disable_created_metrics()  # type: ignore[no-untyped-call] # nobody uses them
        self.config = config
        self.metrics = CollectorRegistry()
        ProcessCollector(registry=self.metrics)
        self.batcher = Batcher(config.batch_size, self.metrics)
        self.is_alive: Callable[[], bool] | None = None
        self._probe: asyncio.Task[bytes] | None = None
        self.draining = False
        self._threads = ThreadPoolExecutor(THREADS, "nq-answering")
        self.requests = 0
        self.uploads = set[asyncio.Timeout]()
        self.calls: dict[Future[Any], float] = {}
        text = "Requests that are read, wait or are computed."
        in_progress = Gauge("nq_requests_in_progress", text, registry=self.metrics)
        in_progress.set_function(lambda: self.requests + len(self.uploads))
        limit_s = max(MIN_READ_S, READ_SHARE * config.timeout)
        self._quick, self._slow = ((PageProcess(limit_s), asyncio.Lock()) for _ in range(2))

    def stuck(self) -> str | None:
        """Returns why requests cannot be answered in time: all threads or processes are stuck.

        A request that has had its time is left out unless a thread has begun with it.
        """
        limit_s = self.config.timeout
        since = asyncio.get_running_loop().time() - limit_s
        if sum(start < since for start in list(self.calls.values())) >= THREADS:
            return f"no thread that reads questions has come to an end for {limit_s:g} s"
        if self.batcher.is_stuck(limit_s):
            return f"no process of the model has answered for {limit_s:g} s"
        return None

    async def problem(self) -> str | None:
        """Returns why no question can be answered, or ``None``; may ask one to find out."""
        if stuck := self.stuck():
            return stuck
        if not self.is_alive or self.draining:
            return "the model is not loaded yet, or the server is about to end"
        if not self._model.folder.is_dir():
            return "the folder of the model is missing: put it back, or start nq serve again"
        is_alive = self.is_alive()
        if is_alive and asyncio.get_running_loop().time() - self.batcher.scored_at < PROBE_S:
            return None
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self.ask(PROBE))
            self._probe.add_done_callback(lambda probe: probe.cancelled() or probe.exception())
        done, _ = await asyncio.wait({self._probe}, timeout=self.config.timeout * is_alive)
        if not is_alive:
            return "no process of the model runs: one is being started"
        error = self._probe.exception() if done else TimeoutError()
        return self.explain(error)[1] if error else None

    def explain(self, error: BaseException) -> tuple[int, str]:
        """Returns status and text of an error; one that nobody expects is logged."""
        if isinstance(error, TimeoutError):
            return 504, (
                f"no answer within {self.config.timeout:g} s: send a shorter page, or start "
                "nq serve with a higher --timeout"
            )
        if isinstance(error, ScoringError):
            return 500, f"the model has not answered: {error}"
        if isinstance(error, ClientDisconnect | SlowClientError):
            return GONE, "the client has gone"
        if isinstance(error, ValueError | Error):  # the latter if no package reads such a file
            return 422, " ".join(str(error).split())
        log.error("unexpected error", exc_info=error)
        return 500, "internal error, which the log of the server describes"

    async def ask(self, body: bytes) -> bytes:
        """Returns the answer to a request as JSON; ``explain`` tells its errors."""

        def prepare() -> tuple[Page, Windowed]:
            page = select_page(question, pages, lambda page: page, model.windows)
            made = windowed(page.with_question(question), self._tokenizer, model.windows)
            if len(made) > self.config.max_windows:
                raise ValueError(
                    f"the page has {len(made)} windows, the limit is {self.config.max_windows}: "
                    "send a part of it, or start nq serve with a higher --max-windows"
                )
            return page, made

        def answer() -> bytes:
            ranked = decide(scored.example, scored.scores, model.decision)
            shown = make_answer(question, page, ranked, top, model.windows)
            return orjson.dumps(shown.to_dict())

        model = self._model
        question, pages, top = await self._read(body)
        page, made = await self._in_thread(prepare)
        scored = await self.batcher.score(made)
        return await self._in_thread(answer)

    def close(self) -> None:
        """Ends the processes, and the threads when their current work is done."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process, _ in (self._quick, self._slow):
            process.close()

    async def _read(self, body: bytes) -> tuple[str, list[Page], int]:
        """Parses a request by ``parse_request`` in a process with limits; see ``PageProcess``.

        What can take seconds, several pages and large ones, has a process of its own.
        """
        is_slow = len(body) > QUICK_BYTES or b'"pages"' in body
        process, turn = self._slow if is_slow else self._quick
        read = partial(process.read, "the page", parse_request, body)
        async with turn:
            try:
                return await self._in_thread(read)
            except asyncio.CancelledError:  # nobody waits for it any more
                process.stop()
                raise

    async def _in_thread(self, function: Callable[[], T]) -> T:
        call = self._threads.submit(function)
        self.calls[call] = asyncio.get_running_loop().time()
        call.add_done_callback(self.calls.pop)
        return await asyncio.wrap_future(call)
