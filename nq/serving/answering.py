"""Requests in, answers out: everything about a question but the model, in a few threads.

The steps and the JSON are those of ``nq ask`` and ``nq answer``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import orjson

from nq.config import ServeConfig
from nq.formats import documents, inputs, questions
from nq.formats.documents import page_of
from nq.formats.outputs import encode_prediction
from nq.inference.scorer import example_scores, feature_rows
from nq.model.spec import ModelSpec
from nq.postprocess.decision import RULES, decide
from nq.preprocess.features import features
from nq.preprocess.tokenizers.base import Tokenizer
from nq.reader import answer_of
from nq.records import Columns, Example, Page
from nq.report.answer import to_dict
from nq.serving.batcher import Batcher
from nq.serving.schemas import AskRequest, parse_request
from nq.text import one_line

THREADS = 2
"""Threads that parse and decide; more would only compete for Python's lock."""
READ_PAGE: dict[str, Callable[[str], Page]] = {
    "auto": partial(page_of, name="the page"),
    "text": documents.page_from_text,
    "html": documents.page_from_html,
}

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class _Question:
    """A request that is read: its question, its page and the page's windows."""

    question: str
    page: Page
    top: int
    example: Example
    rows: Columns


class Answering:
    """Answers requests, whose windows a batcher has scored.

    Args:
        model: the model.
        tokenizer: of the model.
        config: limits.
        batcher: has windows scored.
    """

    def __init__(
        self, model: ModelSpec, tokenizer: Tokenizer, config: ServeConfig, batcher: Batcher
    ) -> None:
        self.config, self.batcher = config, batcher
        self.windows, self.decision = model.windows, model.decision
        self._tokenizer = tokenizer
        self._threads = ThreadPoolExecutor(THREADS, "nq-answering")

    async def ask(self, body: bytes) -> bytes:
        """Returns the answer to a request of ``/v1/ask`` as JSON.

        Raises:
            ValueError: the request is wrong, or its page too large; the text says why.
            ScoringError: the windows are not scored.
        """
        request = await self._in_thread(self._read, body)
        columns = await self.batcher.scores(request.example, request.rows)
        return await self._in_thread(self._answer, request, columns)

    async def predict(self, line: bytes, number: int) -> bytes:
        """Returns the prediction for a record as JSON.

        Args:
            line: the record, in any dialect of ``nq.formats.inputs``.
            number: of the line, from 1, which names a record without an id.

        Raises:
            ValueError: the record is wrong or too large; the text says why.
            ScoringError: the windows are not scored.
        """
        example, rows = await self._in_thread(self._decode, line, number)
        columns = await self.batcher.scores(example, rows)
        return await self._in_thread(self._prediction, example, columns)

    def close(self) -> None:
        """Ends the threads once they have done what they began."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)

    def _read(self, body: bytes) -> _Question:
        request: AskRequest = parse_request(body)
        page = READ_PAGE[request.format](request.page)
        question = one_line(request.question)
        example = page.with_question(question)
        return _Question(question, page, request.top, example, self._rows(example))

    def _answer(self, request: _Question, columns: Columns) -> bytes:
        decision = decide(request.example, example_scores(columns), self.decision)
        answer = answer_of(request.question, request.page, decision, request.top)
        return orjson.dumps(to_dict(answer))

    def _decode(self, line: bytes, number: int) -> tuple[Example, Columns]:
        example = inputs.decode_example(line)
        if example.example_id == questions.NO_ID:
            example = replace(example, example_id=f"line:{number}")
        return example, self._rows(example)

    def _prediction(self, example: Example, columns: Columns) -> bytes:
        prediction = decide(example, example_scores(columns), self.decision).prediction
        with_bytes = RULES[self.decision.rule].with_bytes
        token_bytes = example.token_bytes if with_bytes else None
        return orjson.dumps(encode_prediction(prediction, token_bytes, example.original))

    def _rows(self, example: Example) -> Columns:
        """Returns the windows of an example.

        Raises:
            ValueError: there are too many.
        """
        windows = features(example, self._tokenizer, self.windows)
        if len(windows) > self.config.max_windows:
            raise ValueError(
                f"the page has {len(windows)} windows, the limit is {self.config.max_windows}: "
                "send a part of it, or start nq serve with a higher --max-windows"
            )
        return feature_rows(windows)
