"""Predictions in the official format: ``{"predictions": [...]}``, null answers as -1."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from nq.files import atomic_write
from nq.records import IntArray, Prediction, Span


def encode_prediction(
    prediction: Prediction, token_bytes: IntArray | None = None
) -> dict[str, Any]:
    """One prediction as the official evaluation reads it.

    Args:
        prediction: what was answered.
        token_bytes: ``[n_tokens, 2]`` bytes of the document's tokens, if known.
    """
    spans = prediction.shorts or (None,)
    return {
        "example_id": prediction.example_id,
        "long_answer": _span(prediction.long, token_bytes),
        "long_answer_score": prediction.long_score,
        "short_answers": [_span(span, token_bytes) for span in spans],
        "short_answers_score": prediction.short_score,
        "yes_no_answer": str(prediction.yes_no),
    }


def _span(span: Span | None, token_bytes: IntArray | None) -> dict[str, int]:
    start, end = (span.start, span.end) if span else (-1, -1)
    start_byte, end_byte = byte_span(span, token_bytes) if span else (-1, -1)
    return {
        "start_token": start,
        "end_token": end,
        "start_byte": start_byte,
        "end_byte": end_byte,
    }


def byte_span(span: Span, token_bytes: IntArray | None) -> tuple[int, int]:
    """Start and end byte of ``span``; -1, -1 where ``token_bytes`` give it none."""
    if token_bytes is not None and span.start < span.end <= len(token_bytes):
        start, end = int(token_bytes[span.start, 0]), int(token_bytes[span.end - 1, 1])
        if 0 <= start < end:
            return start, end
    return -1, -1


def write_predictions(path: Path, predictions: Iterable[dict[str, Any]]) -> None:
    """Streams encoded predictions into ``path``, which is there whole or not at all."""
    separator = b"\n"
    with atomic_write(path) as file:
        file.write(b'{"predictions": [')
        for prediction in predictions:
            file.write(separator + orjson.dumps(prediction))
            separator = b",\n"
        file.write(b"\n]}\n")
