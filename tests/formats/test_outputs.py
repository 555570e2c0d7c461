"""What is written besides the official predictions, read back."""

from __future__ import annotations

import csv
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nq.config import DecisionConfig
from nq.formats import kaggle, nbest, outputs
from nq.postprocess.decision import RULES, decide, weighed
from nq.records import Example, Prediction, Span, Weighed, YesNo
from tests.formats.test_predictions import N_TOKENS, predictions
from tests.postprocess import synthetic_pages


def page(prediction: Prediction, with_bytes: bool = False) -> Example:
    words = [f"w{i}" for i in range(N_TOKENS)]
    places = np.stack([np.arange(N_TOKENS) * 10, np.arange(N_TOKENS) * 10 + 7], axis=1)
    return Example(
        prediction.example_id,
        'who, "me"?\nor \u2028 you',
        words,
        [False] * N_TOKENS,
        (),
        token_bytes=places if with_bytes else None,
        title="Ü",
    )


def written(folder: Path, found: list[Prediction], with_bytes: bool = False) -> None:
    with outputs.write(folder, tuple(outputs.FORMATS)) as write:
        for prediction in found:
            write(page(prediction, with_bytes), prediction, None)


def spans(text: str) -> tuple[Span, ...]:
    return tuple(Span(*map(int, part.split(":"))) for part in text.split())


@settings(deadline=None, max_examples=50)
@given(st.lists(predictions(), max_size=5))
def test_kaggle_rows_read_back_are_the_predictions(found: list[Prediction]) -> None:
    with tempfile.TemporaryDirectory() as name:
        written(Path(name), found)
        with open(Path(name, "kaggle.csv"), newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
    assert header == ["example_id", "PredictionString"]
    assert len(rows) == 2 * len(found)
    for prediction, long, short in zip(found, rows[::2], rows[1::2], strict=True):
        assert long[0] == f"{prediction.example_id}_long"
        assert short[0] == f"{prediction.example_id}_short"
        assert spans(long[1]) == (() if prediction.long is None else (prediction.long,))
        if prediction.yes_no is YesNo.NONE:
            assert spans(short[1]) == prediction.shorts
        else:
            assert short[1] == prediction.yes_no


def test_kaggle_looks_as_the_sample_submission(tmp_path: Path) -> None:
    found = [
        Prediction(-5, Span(105, 200), 1.0, (), 1.0, YesNo.YES),
        Prediction(7),
        Prediction(8, Span(6, 18), 1.0, (Span(6, 8),), 1.0),
    ]
    with outputs.write(tmp_path, ["kaggle"]) as write:
        for prediction in found:
            write(page(prediction), prediction, None)
    assert (tmp_path / kaggle.FILE).read_text(encoding="utf-8").split("\n") == [
        "example_id,PredictionString",
        *("-5_long,105:200", "-5_short,YES", "7_long,", "7_short,", "8_long,6:18", "8_short,6:8"),
        "",
    ]


@settings(deadline=None, max_examples=50)
@given(st.lists(predictions(), max_size=5), st.booleans())
def test_nbest_lines_say_what_the_predictions_say(
    found: list[Prediction], with_bytes: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        written(Path(name), found, with_bytes)
        data = Path(name, "nbest.jsonl").read_bytes()
    lines = [json.loads(line) for line in data.split(b"\n")[:-1]]
    for prediction, line in zip(found, lines, strict=True):
        example = page(prediction)
        assert line["example_id"] == prediction.example_id
        assert (line["question"], line["title"]) == (example.question, "Ü")
        assert line["probabilities"] is False
        (answer,) = line["answers"]
        check(answer, prediction, example, with_bytes)


def check(answer: dict[str, object], prediction: Prediction, page: Example, bytes_: bool) -> None:
    def told(span: Span) -> dict[str, object]:
        places = {"start_byte": span.start * 10, "end_byte": span.end * 10 - 3}
        return {
            "start_token": span.start,
            "end_token": span.end,
            "text": page.text(span),
            **(places if bytes_ else {}),
        }

    assert answer == {
        "long_answer": None if prediction.long is None else told(prediction.long),
        "long_score": prediction.long_score,
        "short_answers": [told(span) for span in prediction.shorts],
        "short_score": prediction.short_score,
        "yes_no_answer": prediction.yes_no,
    }


@settings(deadline=None, max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1),
    rule=st.sampled_from(sorted(RULES)),
    threshold=st.sampled_from([0.0, 0.3, 0.6, 1.0]),
)
def test_the_first_of_the_n_best_is_the_prediction(seed: int, rule: str, threshold: float) -> None:
    example, entry = synthetic_pages.example(seed), RULES[rule]
    scores = synthetic_pages.window_scores(
        synthetic_pages.logits(seed, ties=False), entry.k, entry.text_only
    )
    config = DecisionConfig(rule=rule, long_threshold=threshold, short_threshold=threshold)
    prediction = decide(example, scores, config)
    more = weighed(example, scores, config)
    assert (more is None) == (rule != "default")
    line = json.loads(nbest.encode(example, prediction, more))
    first, *others = line["answers"]
    check(first, prediction, example, bytes_=False)
    if more is None:
        assert not others
        return
    known = more(nbest.ALTERNATIVES)
    free = decide(example, scores, replace(config, long_threshold=0.0, short_threshold=0.0))
    told = others if known and prediction != free else line["answers"]
    assert [a["long_score"] for a in told[: len(known)]] == [a.long_probability for a in known]
    assert len(others) <= nbest.ALTERNATIVES
    assert [a["long_score"] for a in others] == sorted(
        (a["long_score"] for a in others), reverse=True
    )
    assert all(0 <= a["long_score"] <= 1 and a["long_answer"] for a in others)


def test_text_has_blanks_only_where_the_page_has() -> None:
    places = np.array([[0, 3], [3, 6], [7, 9], [9, 9], [9, 12], [12, 12]])
    words = ["日", "本", "ab", "<P>", "日", "x"]
    html = [False, False, False, True, False, False]
    example = Example(1, "?", words, html, (), token_bytes=places)
    assert example.text(Span(0, 6)) == "日本 ab日x"
    assert replace(example, token_bytes=None).text(Span(0, 6)) == "日 本 ab 日 x"
    assert replace(example, token_bytes=places * 0 - 1).text(Span(0, 2)) == "日 本"
    assert example.text(Span(3, 4)) == ""


# --- files --------------------------------------------------------------------------------


def test_files_are_whole_or_not_there(tmp_path: Path) -> None:
    written(tmp_path, [Prediction(1)])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(before) == ["kaggle.csv", "nbest.jsonl"]

    def fail(limit: int) -> tuple[()]:
        raise KeyboardInterrupt

    def interrupted(weighed: Weighed) -> None:
        with outputs.write(tmp_path, tuple(outputs.FORMATS)) as write:
            write(page(Prediction(2)), Prediction(2), weighed)

    with pytest.raises(KeyboardInterrupt):
        interrupted(fail)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_was_not_asked_for_does_not_stay_from_an_older_run(tmp_path: Path) -> None:
    written(tmp_path, [Prediction(1)])
    with outputs.write(tmp_path, ["kaggle"]):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["kaggle.csv"]
    with outputs.write(tmp_path, []) as write:
        write(page(Prediction(1)), Prediction(1), None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("official", ()),
        ("nbest", ("nbest",)),
        (" nbest , kaggle,official,nbest", ("kaggle", "nbest")),
        ("", ()),
    ],
)
def test_names_of_formats(text: str, expected: tuple[str, ...]) -> None:
    assert outputs.parse(text) == expected


def test_unknown_formats_are_named() -> None:
    with pytest.raises(ValueError, match="unknown format csv, xml; known are official, kaggle, nb"):
        outputs.parse("xml,kaggle,csv")
