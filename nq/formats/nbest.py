"""Predictions with the answers that were weighed against them, a line of JSON an example:

    {"example_id": 7, "question": "…", "title": "…", "probabilities": true, "answers": [
        {"long_answer": {"start_token": 3, "end_token": 90, "text": "…"}, "long_score": 0.81,
         "short_answers": [{"start_token": 9, "end_token": 12, "text": "…"}],
         "short_score": 0.54, "yes_no_answer": "NONE"}, …]}

The first answer is the prediction; the others are what the decision weighed, best first. Where
a threshold held an answer back, the first has null and what was held back comes second. Scores
are probabilities if ``probabilities`` says so; the decisions of the originals give sums of
logits, and no alternatives. Spans have ``start_byte`` and ``end_byte`` where the data have.
"""

from __future__ import annotations

from typing import Any

import orjson

from nq.formats.predictions import byte_span
from nq.records import Example, Prediction, Span, Weighed

NAME = "nbest"
FILE = "nbest.jsonl"
HEADER = b""
ALTERNATIVES = 5


def encode(example: Example, prediction: Prediction, weighed: Weighed | None) -> bytes:
    """The line of an example."""
    first = _answer(example, prediction)
    others = [
        _answer(
            example,
            Prediction(
                example.example_id,
                other.long,
                other.long_probability,
                other.shorts,
                other.short_probability,
                other.yes_no,
            ),
        )
        for other in (weighed(ALTERNATIVES) if weighed else ())
    ]
    line = {
        "example_id": example.example_id,
        "question": example.question,
        "title": example.title,
        "probabilities": weighed is not None,
        "answers": [first, *(other for other in others if other != first)],
    }
    return orjson.dumps(line) + b"\n"


def _answer(example: Example, found: Prediction) -> dict[str, Any]:
    return {
        "long_answer": None if found.long is None else _span(example, found.long),
        "long_score": found.long_score,
        "short_answers": [_span(example, span) for span in found.shorts],
        "short_score": found.short_score,
        "yes_no_answer": str(found.yes_no),
    }


def _span(example: Example, span: Span) -> dict[str, Any]:
    start, end = byte_span(span, example.token_bytes)
    return {
        "start_token": span.start,
        "end_token": span.end,
        **({"start_byte": start, "end_byte": end} if start >= 0 else {}),
        "text": example.text(span),
    }
