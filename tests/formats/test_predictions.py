"""Tests that the prediction file is the official one and is written one record at a time."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nq.evaluation import labels
from nq.formats.predictions import encode_prediction, write_predictions
from nq.records import Prediction, Span, YesNo

N_TOKENS = 12
BYTES = np.stack([np.arange(N_TOKENS) * 10, np.arange(N_TOKENS) * 10 + 7], axis=1)
NULL = {"start_token": -1, "end_token": -1, "start_byte": -1, "end_byte": -1}

spans = st.tuples(st.integers(0, N_TOKENS - 1), st.integers(1, N_TOKENS)).map(
    lambda pair: Span(min(pair[0], pair[1] - 1), pair[1])
)
scores = st.floats(-1e6, 1e6)
shorts = st.lists(spans, max_size=3, unique=True).map(tuple)


@st.composite
def predictions(draw: st.DrawFn) -> Prediction:
    yes_no = draw(st.sampled_from(YesNo))
    return Prediction(
        draw(st.integers(-(2**63), 2**63 - 1) | st.text(min_size=1)),
        draw(st.none() | spans),
        draw(scores),
        draw(shorts) if yes_no is YesNo.NONE else (),
        draw(scores),
        yes_no,
    )


@given(predictions(), st.booleans())
def test_the_evaluation_reads_encoded_predictions(prediction: Prediction, with_bytes: bool) -> None:
    encoded = encode_prediction(prediction, BYTES if with_bytes else None)
    label = labels.prediction_label(encoded)
    assert labels.example_id(encoded) == labels.example_id({"example_id": prediction.example_id})
    assert label.has_long == (prediction.long is not None)
    assert label.has_short == (bool(prediction.shorts) or prediction.yes_no is not YesNo.NONE)
    assert prediction.answered == (label.has_long or label.has_short)
    assert (label.long_score, label.short_score) == (prediction.long_score, prediction.short_score)
    assert label.yes_no.upper() == prediction.yes_no
    for span, read in zip(
        (*(() if prediction.long is None else (prediction.long,)), *prediction.shorts),
        (*((label.long,) if label.has_long else ()), *label.short_spans),
        strict=True,
    ):
        assert read.tokens == (span.start, span.end)
        expected = (span.start * 10, (span.end - 1) * 10 + 7) if with_bytes else (-1, -1)
        assert read.bytes == expected


def test_a_prediction_has_the_official_layout() -> None:
    prediction = Prediction(7, Span(1, 9), 2.5, (Span(2, 3), Span(4, 6)), 1.5)
    assert encode_prediction(prediction, BYTES) == {
        "example_id": 7,
        "long_answer": {"start_token": 1, "end_token": 9, "start_byte": 10, "end_byte": 87},
        "long_answer_score": 2.5,
        "short_answers": [
            {"start_token": 2, "end_token": 3, "start_byte": 20, "end_byte": 27},
            {"start_token": 4, "end_token": 6, "start_byte": 40, "end_byte": 57},
        ],
        "short_answers_score": 1.5,
        "yes_no_answer": "NONE",
    }


def test_null_answers_are_minus_one() -> None:
    encoded = encode_prediction(Prediction("x"))
    assert encoded["long_answer"] == NULL and encoded["short_answers"] == [NULL]
    assert encoded["yes_no_answer"] == "NONE"


def test_bytes_that_are_not_a_span_become_null() -> None:
    odd = np.array([[5, 9], [-1, -1], [3, 4]])
    for span in (Span(0, 2), Span(0, 3), Span(1, 2), Span(2, 4)):
        encoded = encode_prediction(Prediction(1, span), odd)["long_answer"]
        assert (encoded["start_byte"], encoded["end_byte"]) == (-1, -1)
        assert (encoded["start_token"], encoded["end_token"]) == (span.start, span.end)


@settings(deadline=None, max_examples=30)
@given(st.lists(predictions(), max_size=4))
def test_a_file_of_any_number_of_predictions_is_valid_json(items: list[Prediction]) -> None:
    encoded = [encode_prediction(prediction) for prediction in items]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.json"
        write_predictions(path, iter(encoded))
        assert json.loads(path.read_bytes()) == {"predictions": encoded}
        read = labels.read_predictions(path)
        assert read == {labels.example_id(e): labels.prediction_label(e) for e in encoded}
        assert [p.name for p in path.parent.iterdir()] == ["predictions.json"]


def test_predictions_are_streamed_into_a_file_that_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "predictions.json"

    def stream() -> Iterator[dict[str, Any]]:
        for number in range(3):
            assert not path.exists()
            yield encode_prediction(Prediction(number))

    write_predictions(path, stream())
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 5
    assert [json.loads(line.rstrip(","))["example_id"] for line in lines[1:4]] == [0, 1, 2]


def test_an_interruption_keeps_the_previous_file(tmp_path: Path) -> None:
    path = tmp_path / "predictions.json"
    write_predictions(path, [encode_prediction(Prediction(1))])
    before = path.read_bytes()

    def stream() -> Iterator[dict[str, Any]]:
        yield encode_prediction(Prediction(2))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_predictions(path, stream())
    assert path.read_bytes() == before
