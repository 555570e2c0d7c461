"""Predictions in the official format, ``{"predictions": [...]}``: null answers are -1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from nq.records import IntArray, Original, Prediction, Span
from nq.storage import atomic_write


def encode_prediction(
    prediction: Prediction,
    token_bytes: IntArray | None = None,
    original: Original | None = None,
) -> dict[str, Any]:
    """Returns one prediction as the official evaluation reads it.

    Args:
        prediction: The answers to one example.
        token_bytes: ``[n_tokens, 2]`` start and end byte of each document token, if known.
        original: The user's text; answers then have characters in it too, -1 if not known.
    """

    def encode(span: Span | None) -> dict[str, int]:
        start, end = (-1, -1) if span is None else byte_span(span, token_bytes)
        return {
            "start_token": -1 if span is None else span.start,
            "end_token": -1 if span is None else span.end,
            "start_byte": start,
            "end_byte": end,
            **char_span(span, original),
        }

    return {
        "example_id": prediction.example_id,
        "long_answer": encode(prediction.long),
        "long_answer_score": prediction.long_score,
        "short_answers": [encode(span) for span in prediction.shorts or (None,)],
        "short_answers_score": prediction.short_score,
        "yes_no_answer": str(prediction.yes_no),
    }


def char_span(span: Span | None, original: Original | None) -> dict[str, int]:
    """Returns where a span is in the user's text, -1 if it is ``None`` or its place not known.

    Without the user's text the result is empty.
    """
    if original is None:
        return {}
    start, end = (span and original.place(span)) or (-1, -1)
    return {"start_char": start, "end_char": end}


def byte_span(span: Span, token_bytes: IntArray | None) -> tuple[int, int]:
    """Returns the start and end byte of ``span``, (-1, -1) if ``token_bytes`` has none for it."""
    if token_bytes is not None and span.start < span.end <= len(token_bytes):
        start, end = int(token_bytes[span.start, 0]), int(token_bytes[span.end - 1, 1])
        if 0 <= start < end:
            return start, end
    return -1, -1


def write_predictions(path: Path, predictions: Iterable[Mapping[str, Any]]) -> None:
    """Writes encoded predictions to ``path`` one by one; the file appears when it is complete."""
    separator = b"\n"
    with atomic_write(path) as file:
        file.write(b'{"predictions": [')
        for prediction in predictions:
            file.write(separator + orjson.dumps(prediction))
            separator = b",\n"
        file.write(b"\n]}\n")
