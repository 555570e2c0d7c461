"""Predictions with their n-best lists, one JSON object per line:

    {"example_id": 7, "question": "…", "title": "…", "probabilities": true, "answers": [
        {"long_answer": {"start_token": 3, "end_token": 90, "text": "…"}, "long_score": 0.81,
         "short_answers": [{"start_token": 9, "end_token": 12, "text": "…"}],
         "short_score": 0.54, "yes_no_answer": "NONE"}, …]}

The first answer is the prediction, the others are the alternatives, best first. Where a threshold
made the prediction null, the best alternative comes second. Scores are probabilities if
``probabilities`` is true; the rules of the originals give sums of logits and no alternatives. Spans
have ``start_byte`` and ``end_byte`` where the data have, and ``start_char`` and ``end_char`` where
the user's own text was cut into tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from nq.formats.predictions import byte_span, char_span
from nq.records import Alternative, Example, Prediction, Span

FILE = "nbest.jsonl"
ALTERNATIVES = 5


def encode(
    example: Example, prediction: Prediction, alternatives: Sequence[Alternative] | None
) -> bytes:
    """Returns the line of an example."""

    def place(span: Span) -> dict[str, Any]:
        start, end = byte_span(span, example.token_bytes)
        return {
            "start_token": span.start,
            "end_token": span.end,
            **({"start_byte": start, "end_byte": end} if start >= 0 else {}),
            **char_span(span, example.original),
            "text": example.text(span),
        }

    def answer(
        part: Prediction | Alternative, long_score: float, short_score: float
    ) -> dict[str, Any]:
        return {
            "long_answer": None if part.long is None else place(part.long),
            "long_score": long_score,
            "short_answers": [place(span) for span in part.shorts],
            "short_score": short_score,
            "yes_no_answer": str(part.yes_no),
        }

    first = answer(prediction, prediction.long_score, prediction.short_score)
    others = [answer(a, a.long_probability, a.short_probability) for a in alternatives or ()]
    line = {
        "example_id": example.example_id,
        "question": example.question,
        "title": example.title,
        "probabilities": alternatives is not None,
        "answers": [first, *(other for other in others if other != first)],
    }
    return orjson.dumps(line) + b"\n"
