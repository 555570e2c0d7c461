"""Tests that the official file and the other output formats contain the predictions."""

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nq.evaluation import official
from nq.formats import outputs
from nq.formats.outputs import encode_prediction, write_predictions
from nq.records import Alternative, Example, Prediction, Span, YesNo

N_TOKENS = 12
BYTES = np.stack([np.arange(N_TOKENS) * 10, np.arange(N_TOKENS) * 10 + 7], axis=1)
NULL = {"start_token": -1, "end_token": -1, "start_byte": -1, "end_byte": -1}
NAMES = tuple(outputs.FORMATS)


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
    read = official.prediction(encode_prediction(prediction, BYTES))
    assert read.long == official.FileSpan(1, 9, 10, 87)
    assert official.token_spans(read.shorts) == [Span(2, 3), Span(4, 6)]
    assert (read.long_score, read.short_score) == (2.5, 1.5)
    odd = np.array([[5, 9], [-1, -1], [3, 4]])  # bytes that are no span
    for span in (Span(0, 2), Span(0, 3), Span(1, 2), Span(2, 4)):
        encoded = encode_prediction(Prediction(1, span), odd)["long_answer"]
        assert (encoded["start_byte"], encoded["end_byte"]) == (-1, -1)


def no_alternatives(limit: int) -> None:
    """Stands for a decision rule without probabilities."""


def write(folder: Path, *predictions: Prediction) -> None:
    """Writes predictions about a page of ten words in every format."""
    words = [f"w{i}" for i in range(N_TOKENS)]
    with outputs.open_writer(folder, NAMES) as write_one:
        for one in predictions:
            example = Example(one.example_id, 'who, "me"?', words, [False] * N_TOKENS, ())
            example = replace(example, token_bytes=BYTES, title="Ü")
            write_one(outputs.encode(NAMES, example, one, no_alternatives))


def test_every_format_has_every_answer(tmp_path: Path) -> None:
    write(
        tmp_path,
        Prediction(7, Span(1, 9), 2.5, (Span(2, 3), Span(4, 6)), 1.5),
        Prediction('q,"1"', Span(1, 3), 0.5, (), 0.25, YesNo.YES),
        Prediction("null"),
    )
    assert (tmp_path / "kaggle.csv").read_text() == (
        "example_id,PredictionString\n7_long,1:9\n7_short,2:3 4:6\n"
        '"q,""1""_long",1:3\n"q,""1""_short",YES\nnull_long,\nnull_short,\n'
    )
    squad = json.loads((tmp_path / "squad.json").read_bytes())
    assert squad == {"7": "w2; w4 w5", 'q,"1"': "yes", "null": ""}
    lines = (tmp_path / "nq_open.jsonl").read_bytes().splitlines()
    expected = [{"question": 'who, "me"?', "prediction": text} for text in squad.values()]
    assert list(map(json.loads, lines)) == expected
    first, second, null = map(json.loads, (tmp_path / "nbest.jsonl").read_bytes().splitlines())
    (answer,) = first.pop("answers")
    assert first == {
        "example_id": 7,
        "question": 'who, "me"?',
        "title": "Ü",
        "probabilities": False,
    }
    assert answer["short_answers"][0] == {
        **{"start_token": 2, "end_token": 3, "start_byte": 20, "end_byte": 27, "text": "w2"}
    }
    assert answer["long_answer"]["text"] == "w1 w2 w3 w4 w5 w6 w7 w8"
    assert (answer["long_score"], answer["short_score"], answer["yes_no_answer"]) == (
        *(2.5, 1.5),
        "NONE",
    )
    assert second["answers"][0]["yes_no_answer"] == "YES"
    assert null["answers"][0]["long_answer"] is None


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
    write(tmp_path, Prediction(example_id))
    with open(tmp_path / "kaggle.csv", newline="", encoding="utf-8") as file:
        assert [name for name, _ in csv.reader(file)][1:] == [f"{written}_long", f"{written}_short"]


def test_an_interruption_leaves_the_former_files(tmp_path: Path) -> None:
    write(tmp_path, Prediction(1))
    write_predictions(tmp_path / "predictions.json", [encode_prediction(Prediction(1))])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    files = {"predictions.json", *(one.file for one in outputs.FORMATS.values())}
    assert before.keys() == files

    def interrupt(limit: int) -> tuple[Alternative, ...]:
        raise KeyboardInterrupt

    def stream() -> Iterator[dict[str, Any]]:
        yield encode_prediction(Prediction(2))
        raise KeyboardInterrupt

    example = Example(3, "who", ["w"], [False], ())
    with pytest.raises(KeyboardInterrupt), outputs.open_writer(tmp_path, NAMES) as write_one:
        for alternatives in (no_alternatives, interrupt):
            write_one(outputs.encode(NAMES, example, Prediction(3), alternatives))
    with pytest.raises(KeyboardInterrupt):
        write_predictions(tmp_path / "predictions.json", stream())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with outputs.open_writer(tmp_path, ["kaggle"]):
        pass  # files of formats that are not requested are removed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kaggle.csv", "predictions.json"]
