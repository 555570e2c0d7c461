"""Tests that the official file and the other output formats contain the predictions."""

import csv
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.evaluation import labels
from nq.formats import outputs
from nq.formats.outputs import encode_prediction, write_predictions
from nq.records import Alternative, Example, Prediction, Span, YesNo

N_TOKENS = 12
BYTES = np.stack([np.arange(N_TOKENS) * 10, np.arange(N_TOKENS) * 10 + 7], axis=1)
NULL = {"start_token": -1, "end_token": -1, "start_byte": -1, "end_byte": -1}
NAMES = tuple(outputs.FORMATS)

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
    encoded = encode_prediction(Prediction("x"))
    assert encoded["long_answer"] == NULL and encoded["short_answers"] == [NULL]
    odd = np.array([[5, 9], [-1, -1], [3, 4]])  # bytes that are no span
    for span in (Span(0, 2), Span(0, 3), Span(1, 2), Span(2, 4)):
        encoded = encode_prediction(Prediction(1, span), odd)["long_answer"]
        assert (encoded["start_byte"], encoded["end_byte"]) == (-1, -1)


def page(prediction: Prediction, with_bytes: bool = False) -> Example:
    return Example(
        prediction.example_id,
        'who, "me"?\nor \u2028 you',
        [f"w{i}" for i in range(N_TOKENS)],
        [False] * N_TOKENS,
        (),
        token_bytes=BYTES if with_bytes else None,
        title="Ü",
    )


def no_alternatives(limit: int) -> None:
    """Stands for a decision rule without probabilities."""


def write(folder: Path, predictions: list[Prediction], with_bytes: bool = False) -> None:
    with outputs.open_writer(folder, NAMES) as write_one:
        for prediction in predictions:
            answer = page(prediction, with_bytes), prediction, no_alternatives
            write_one(outputs.encode(NAMES, *answer))


def parse_spans(text: str) -> tuple[Span, ...]:
    return tuple(Span(*map(int, part.split(":"))) for part in text.split())


@given(st.lists(predictions(), max_size=5, unique_by=lambda p: str(p.example_id)), st.booleans())
def test_every_format_has_every_answer(expected: list[Prediction], with_bytes: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), expected, with_bytes)
        with open(Path(name, "kaggle.csv"), newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        lines = Path(name, "nbest.jsonl").read_bytes().split(b"\n")[:-1]
        squad = json.loads(Path(name, "squad.json").read_bytes())
    assert header == ["example_id", "PredictionString"]
    assert list(squad) == [str(prediction.example_id) for prediction in expected]
    for prediction, line, long, short in zip(expected, lines, rows[::2], rows[1::2], strict=True):
        check_kaggle(prediction, long, short)
        example, yes_no = page(prediction), prediction.yes_no
        n_best = json.loads(line)
        assert n_best["example_id"] == prediction.example_id
        assert (n_best["question"], n_best["title"]) == (example.question, "Ü")
        assert n_best["probabilities"] is False
        (answer,) = n_best["answers"]
        assert_answer(answer, prediction, example, with_bytes)
        words = "; ".join(example.text(span) for span in prediction.shorts)
        text = squad[str(prediction.example_id)]
        assert text == (words if yes_no is YesNo.NONE else yes_no.lower())


def check_kaggle(prediction: Prediction, long: list[str], short: list[str]) -> None:
    example_id = prediction.example_id  # without the ' before a formula
    assert long[0] in (f"{example_id}_long", f"'{example_id}_long")
    assert short[0] == long[0].removesuffix("long") + "short"
    assert parse_spans(long[1]) == (() if prediction.long is None else (prediction.long,))
    if prediction.yes_no is YesNo.NONE:
        assert parse_spans(short[1]) == prediction.shorts
    else:
        assert short[1] == prediction.yes_no


def assert_answer(
    answer: dict[str, object], prediction: Prediction, page: Example, bytes_: bool
) -> None:
    def encoded(span: Span) -> dict[str, object]:
        byte_span = {"start_byte": span.start * 10, "end_byte": span.end * 10 - 3}
        tokens = {"start_token": span.start, "end_token": span.end, "text": page.text(span)}
        return {**tokens, **(byte_span if bytes_ else {})}

    assert answer == {
        "long_answer": None if prediction.long is None else encoded(prediction.long),
        "long_score": prediction.long_score,
        "short_answers": [encoded(span) for span in prediction.shorts],
        "short_score": prediction.short_score,
        "yes_no_answer": prediction.yes_no,
    }


@pytest.mark.parametrize(
    ("example_id", "written"),
    [
        *((i, str(i)) for i in (-545833482873225036, "-0", "q1", "a=b", "'q'")),
        *((i, f"'{i}") for i in ("=cmd|' /C calc'!A0", "-1+1", " =1", "'=1", "\r1", "\uff1d1")),
    ],
)
def test_no_id_in_kaggle_rows_is_a_formula(
    example_id: int | str, written: str, tmp_path: Path
) -> None:
    write(tmp_path, [Prediction(example_id)])
    with open(tmp_path / "kaggle.csv", newline="", encoding="utf-8") as file:
        assert [name for name, _ in csv.reader(file)][1:] == [f"{written}_long", f"{written}_short"]


def test_an_interruption_leaves_the_former_files(tmp_path: Path) -> None:
    write(tmp_path, [Prediction(1)])
    write_predictions(tmp_path / "predictions.json", [encode_prediction(Prediction(1))])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    files = {"predictions.json", *(one.file for one in outputs.FORMATS.values())}
    assert before.keys() == files

    def interrupt(limit: int) -> tuple[Alternative, ...]:
        raise KeyboardInterrupt

    def stream() -> Iterator[dict[str, Any]]:
        yield encode_prediction(Prediction(2))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), outputs.open_writer(tmp_path, NAMES) as write_one:
        answer = page(Prediction(3)), Prediction(3)
        write_one(outputs.encode(NAMES, *answer, no_alternatives))
        write_one(outputs.encode(NAMES, *answer, interrupt))
    with pytest.raises(KeyboardInterrupt):
        write_predictions(tmp_path / "predictions.json", stream())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with outputs.open_writer(tmp_path, ["kaggle"]):
        pass  # files of formats that are not requested are removed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kaggle.csv", "predictions.json"]
