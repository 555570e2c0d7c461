"""Tests that the output formats besides the official one contain the predictions."""

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
from nq.postprocess.decision import RULES, decide
from nq.records import Alternative, Example, Prediction, Span, YesNo
from tests.formats.test_predictions import N_TOKENS, predictions
from tests.postprocess import synthetic_pages


def page(prediction: Prediction, with_bytes: bool = False) -> Example:
    words = [f"w{i}" for i in range(N_TOKENS)]
    token_bytes = np.stack([np.arange(N_TOKENS) * 10, np.arange(N_TOKENS) * 10 + 7], axis=1)
    return Example(
        prediction.example_id,
        'who, "me"?\nor \u2028 you',
        words,
        [False] * N_TOKENS,
        (),
        token_bytes=token_bytes if with_bytes else None,
        title="Ü",
    )


def no_alternatives(limit: int) -> None:
    """Stands for a decision rule without probabilities."""


def write(folder: Path, predictions: list[Prediction], with_bytes: bool = False) -> None:
    with outputs.open_writer(folder, tuple(outputs.FORMATS)) as writer:
        for prediction in predictions:
            answer = page(prediction, with_bytes), prediction, no_alternatives
            writer.write(outputs.encode(tuple(outputs.FORMATS), *answer))


def parse_spans(text: str) -> tuple[Span, ...]:
    return tuple(Span(*map(int, part.split(":"))) for part in text.split())


@settings(max_examples=50)
@given(st.lists(predictions(), max_size=5))
def test_kaggle_rows_parse_back_to_the_predictions(expected: list[Prediction]) -> None:
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), expected)
        with open(Path(name, "kaggle.csv"), newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
    assert header == ["example_id", "PredictionString"]
    assert len(rows) == 2 * len(expected)
    for prediction, long, short in zip(expected, rows[::2], rows[1::2], strict=True):
        example_id = prediction.example_id  # without the ' before a formula
        assert long[0] in (f"{example_id}_long", f"'{example_id}_long")
        assert short[0] == long[0].removesuffix("long") + "short"
        assert parse_spans(long[1]) == (() if prediction.long is None else (prediction.long,))
        if prediction.yes_no is YesNo.NONE:
            assert parse_spans(short[1]) == prediction.shorts
        else:
            assert short[1] == prediction.yes_no


@pytest.mark.parametrize(
    ("example_id", "written"),
    [
        *((i, str(i)) for i in (7, -545833482873225036, "-0", "q1", "a=b", "'q'", "_x")),
        *((i, f"'{i}") for i in ("=cmd|' /C calc'!A0", "+1", "-1+1", "@SUM(A1)", " =1", "\t=1")),
        *((i, f"'{i}") for i in ("'=1", "-1 ", "\r1", "\uff1d1")),
    ],
)
def test_no_id_in_kaggle_rows_is_a_formula(example_id: int | str, written: str) -> None:
    rows = kaggle.rows(Prediction(example_id))
    assert [name for name, _ in rows] == [f"{written}_long", f"{written}_short"]


def test_kaggle_rows_have_the_layout_of_the_sample_submission(tmp_path: Path) -> None:
    answers = [
        Prediction(-5, Span(105, 200), 1.0, (), 1.0, YesNo.YES),
        Prediction(7),
        Prediction(8, Span(6, 18), 1.0, (Span(6, 8),), 1.0),
    ]
    with outputs.open_writer(tmp_path, ["kaggle"]) as writer:
        for prediction in answers:
            answer = page(prediction), prediction, no_alternatives
            writer.write(outputs.encode(["kaggle"], *answer))
    assert (tmp_path / kaggle.FILE).read_text(encoding="utf-8").split("\n") == [
        "example_id,PredictionString",
        *("-5_long,105:200", "-5_short,YES", "7_long,", "7_short,", "8_long,6:18", "8_short,6:8"),
        "",
    ]


@settings(max_examples=50)
@given(st.lists(predictions(), max_size=5), st.booleans())
def test_nbest_lines_have_the_answers_of_the_predictions(
    expected: list[Prediction], with_bytes: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), expected, with_bytes)
        data = Path(name, "nbest.jsonl").read_bytes()
    lines = [json.loads(line) for line in data.split(b"\n")[:-1]]
    for prediction, line in zip(expected, lines, strict=True):
        example = page(prediction)
        assert line["example_id"] == prediction.example_id
        assert (line["question"], line["title"]) == (example.question, "Ü")
        assert line["probabilities"] is False
        (answer,) = line["answers"]
        assert_answer(answer, prediction, example, with_bytes)


@settings(max_examples=50)
@given(st.lists(predictions(), max_size=5, unique_by=lambda prediction: str(prediction.example_id)))
def test_the_squad_file_has_one_answer_for_each_question(expected: list[Prediction]) -> None:
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), expected)
        answers = json.loads(Path(name, "squad.json").read_bytes())
    assert list(answers) == [str(prediction.example_id) for prediction in expected]
    for prediction, answer in zip(expected, answers.values(), strict=True):
        words = "; ".join(page(prediction).text(span) for span in prediction.shorts)
        yes_no = prediction.yes_no
        assert answer == (words if yes_no is YesNo.NONE else yes_no.lower())


def assert_answer(
    answer: dict[str, object], prediction: Prediction, page: Example, bytes_: bool
) -> None:
    def encoded(span: Span) -> dict[str, object]:
        byte_span = {"start_byte": span.start * 10, "end_byte": span.end * 10 - 3}
        return {
            "start_token": span.start,
            "end_token": span.end,
            "text": page.text(span),
            **(byte_span if bytes_ else {}),
        }

    assert answer == {
        "long_answer": None if prediction.long is None else encoded(prediction.long),
        "long_score": prediction.long_score,
        "short_answers": [encoded(span) for span in prediction.shorts],
        "short_score": prediction.short_score,
        "yes_no_answer": prediction.yes_no,
    }


@settings(max_examples=80)
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
    decision = decide(example, scores, config)
    alternatives = decision.alternatives(nbest.ALTERNATIVES)
    assert (alternatives is None) == (rule != "default")
    line = json.loads(nbest.encode(example, decision.prediction, alternatives))
    assert line["probabilities"] is (rule == "default")
    first, *others = line["answers"]
    assert_answer(first, decision.prediction, example, bytes_=False)
    if alternatives is None:
        assert not others
        return
    no_thresholds = replace(config, long_threshold=0.0, short_threshold=0.0)
    is_null = decision.prediction != decide(example, scores, no_thresholds).prediction
    ranked = others if alternatives and is_null else line["answers"]
    probabilities = [alternative.long_probability for alternative in alternatives]
    assert [answer["long_score"] for answer in ranked[: len(probabilities)]] == probabilities
    assert len(others) <= nbest.ALTERNATIVES
    scores_of_others = [answer["long_score"] for answer in others]
    assert scores_of_others == sorted(scores_of_others, reverse=True)
    assert all(0 <= a["long_score"] <= 1 and a["long_answer"] for a in others)


def test_text_has_blanks_only_where_the_page_has() -> None:
    token_bytes = np.array([[0, 3], [3, 6], [7, 9], [9, 9], [9, 12], [12, 12]])
    words = ["日", "本", "ab", "<P>", "日", "x"]
    html = [False, False, False, True, False, False]
    example = Example(1, "?", words, html, (), token_bytes=token_bytes)
    assert example.text(Span(0, 6)) == "日本 ab日x"
    assert replace(example, token_bytes=None).text(Span(0, 6)) == "日 本 ab 日 x"
    assert replace(example, token_bytes=token_bytes * 0 - 1).text(Span(0, 2)) == "日 本"
    assert example.text(Span(3, 4)) == ""


# --- files --------------------------------------------------------------------------------


def test_an_interruption_leaves_the_former_files(tmp_path: Path) -> None:
    write(tmp_path, [Prediction(1)])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(before) == ["kaggle.csv", "nbest.jsonl", "squad.json"]

    def interrupt(limit: int) -> tuple[Alternative, ...]:
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        outputs.open_writer(tmp_path, tuple(outputs.FORMATS)) as writer,
    ):
        names = tuple(outputs.FORMATS)
        answer = page(Prediction(3)), Prediction(3)
        writer.write(outputs.encode(names, *answer, no_alternatives))
        writer.write(outputs.encode(names, *answer, interrupt))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_files_of_formats_that_are_not_requested_are_removed(tmp_path: Path) -> None:
    write(tmp_path, [Prediction(1)])
    with outputs.open_writer(tmp_path, ["kaggle"]):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["kaggle.csv"]
    with outputs.open_writer(tmp_path, []) as writer:
        answer = page(Prediction(1)), Prediction(1), no_alternatives
        writer.write(outputs.encode([], *answer))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("formats", "limits"),
    [(["kaggle"], []), (["nbest"], [nbest.ALTERNATIVES]), ([], [])],
)
def test_alternatives_are_computed_only_if_a_format_needs_them(
    tmp_path: Path, formats: list[str], limits: list[int]
) -> None:
    requested: list[int] = []
    with outputs.open_writer(tmp_path, formats) as writer:
        answer = page(Prediction(1)), Prediction(1), requested.append
        writer.write(outputs.encode(formats, *answer))
    assert requested == limits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("official", ()),
        ("nbest", ("nbest",)),
        (" nbest , kaggle,official,nbest", ("kaggle", "nbest")),
        ("", ()),
    ],
)
def test_names_of_formats_are_parsed_in_one_order(text: str, expected: tuple[str, ...]) -> None:
    assert outputs.parse(text) == expected


def test_unknown_formats_are_an_error_that_names_them() -> None:
    with pytest.raises(ValueError, match="unknown format csv, xml; known are official, kaggle, nb"):
        outputs.parse("xml,kaggle,csv")
