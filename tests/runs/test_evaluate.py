"""Scoring a run: gold as predictions is perfect, and what the table calls right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.evaluation import labels, nq_eval
from nq.formats.predictions import encode_prediction, write_predictions
from nq.records import Annotation, Example, Prediction, Span, YesNo
from nq.runs.scoring import Scorekeeper

N_TOKENS = 20
BYTES = np.stack([np.arange(N_TOKENS) * 3, np.arange(N_TOKENS) * 3 + 2], axis=1)
NOTHING = Annotation(None, None, (), YesNo.NONE)
LONG = Annotation(Span(1, 9), 0, (), YesNo.NONE)
SHORT = Annotation(Span(1, 9), 0, (Span(2, 4),), YesNo.NONE)
TWO = Annotation(Span(1, 9), 0, (Span(2, 4), Span(6, 7)), YesNo.NONE)
YES = Annotation(Span(1, 9), 0, (), YesNo.YES)


def example(number: int, *annotations: Annotation, with_bytes: bool = False) -> Example:
    return Example(
        number,
        "who",
        ["word"] * N_TOKENS,
        [False] * N_TOKENS,
        (),
        annotations or None,
        BYTES if with_bytes else None,
    )


def as_prediction(number: int, gold: Annotation, score: float = 1.0) -> Prediction:
    return Prediction(number, gold.long, score, gold.shorts, score, gold.yes_no)


def right(gold: tuple[Annotation, ...], prediction: Prediction) -> bool | None:
    return Scorekeeper().add(example(1, *gold), encode_prediction(prediction))


one_of_each = st.sampled_from([NOTHING, LONG, SHORT, TWO, YES])


@given(st.lists(one_of_each, min_size=1, max_size=8), st.booleans())
def test_gold_as_predictions_is_perfect(golds: list[Annotation], with_bytes: bool) -> None:
    keeper = Scorekeeper()
    for number, gold in enumerate(golds):
        item = example(number, gold, with_bytes=with_bytes)
        encoded = encode_prediction(as_prediction(number, gold), item.token_bytes)
        assert keeper.add(item, encoded) is True
    metrics = keeper.metrics()
    perfect = {"long": any(g.long for g in golds)}
    perfect["short"] = any(g.shorts or g.yes_no is not YesNo.NONE for g in golds)
    for kind, there in perfect.items():
        assert metrics[f"{kind}-best-threshold-f1"] == metrics[f"{kind}-answer-f1"] == float(there)
    for name in ("micro_f1", "micro_f1_best", "kaggle_micro_f1"):
        assert metrics[name] == float(any(perfect.values()))
    assert metrics["long-answer-n"] == len(golds)


def test_metrics_are_those_of_the_evaluation_of_the_files(tmp_path: Path) -> None:
    pairs = [(SHORT, SHORT), (TWO, SHORT), (NOTHING, LONG), (YES, YES), (LONG, NOTHING)]
    keeper, lines, predictions = Scorekeeper(), [], []
    for number, (gold, answer) in enumerate(pairs):
        item = example(number, gold, with_bytes=True)
        encoded = encode_prediction(as_prediction(number, answer, number / 4), BYTES)
        keeper.add(item, encoded)
        predictions.append(encoded)
        as_gold = encode_prediction(as_prediction(number, gold), BYTES)
        lines.append(json.dumps({"example_id": number, "annotations": [as_gold]}))
    write_predictions(tmp_path / "predictions.json", predictions)
    (tmp_path / "gold.jsonl").write_text("\n".join(lines), encoding="utf-8")
    expected = nq_eval.score(
        labels.read_gold(tmp_path / "gold.jsonl"),
        labels.read_predictions(tmp_path / "predictions.json"),
        one_annotator=True,
    )
    assert keeper.metrics() == expected
    assert 0 < expected["micro_f1"] < 1


def test_without_gold_there_is_nothing_to_score() -> None:
    keeper = Scorekeeper()
    assert keeper.add(example(1), encode_prediction(Prediction(1, Span(1, 2)))) is None
    assert keeper.metrics() == {} and keeper.without_gold == 1
    assert keeper.add(example(2, SHORT), encode_prediction(as_prediction(2, SHORT))) is True
    assert keeper.metrics()["long-answer-n"] == 1


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ((SHORT,), SHORT, True),
        ((SHORT,), Annotation(Span(9, 12), 1, (Span(2, 4),), YesNo.NONE), True),
        ((SHORT,), LONG, False),
        ((SHORT,), TWO, False),
        ((SHORT,), NOTHING, False),
        ((TWO,), TWO, True),
        ((TWO,), SHORT, False),
        ((YES,), YES, True),
        ((YES,), SHORT, False),
        ((LONG,), LONG, True),
        ((LONG,), SHORT, True),
        ((LONG,), NOTHING, False),
        ((NOTHING,), NOTHING, True),
        ((NOTHING,), LONG, False),
        ((NOTHING,), YES, False),
        ((SHORT, NOTHING, NOTHING, NOTHING, NOTHING), NOTHING, True),
        ((SHORT, NOTHING, NOTHING, NOTHING, NOTHING), SHORT, False),
        ((SHORT, TWO, NOTHING, NOTHING, NOTHING), TWO, True),
        ((SHORT, LONG, LONG, NOTHING, NOTHING), LONG, True),
    ],
)
def test_right_is_the_short_answer_else_the_long_one_else_none(
    gold: tuple[Annotation, ...], answer: Annotation, expected: bool
) -> None:
    assert right(gold, as_prediction(1, answer)) is expected


def test_odd_gold_does_not_stop_the_run() -> None:
    keeper = Scorekeeper()
    empty = Annotation(Span(3, 3), 0, (Span(4, 4),), YesNo.NONE)
    assert keeper.add(example(1, empty), encode_prediction(Prediction(1))) is True
    gold = Annotation(Span(0, 2), None, (), YesNo.NONE)
    backwards = np.array([[9, 11], [2, 4]])
    item = Example(3, "who", ["a", "b"], [False, False], (), (gold,), backwards)
    encoded = encode_prediction(as_prediction(3, gold), item.token_bytes)
    assert keeper.add(item, encoded) is True
    assert keeper.metrics()["long-answer-n"] == 2
