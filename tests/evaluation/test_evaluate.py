"""Tests the evaluation of a run: its metrics, and which predictions are correct."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.bundle import bundled_sample
from nq.evaluation import nq_eval, official
from nq.evaluation.evaluate import Evaluation, accepted_answers, evaluate, judge
from nq.evaluation.nq_eval import Verdict
from nq.formats.outputs import encode_prediction, write_predictions
from nq.questions import read_examples
from nq.records import Annotation, Example, Prediction, Span, YesNo
from tests.conftest import Commands
from tests.support.nq_records import write_lines

N_TOKENS = 20
BYTES = np.stack([np.arange(N_TOKENS) * 3, np.arange(N_TOKENS) * 3 + 2], axis=1)
NO_ANSWER = Annotation(None, None, (), YesNo.NONE)
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


def as_prediction(number: int | str, gold: Annotation, score: float = 1.0) -> Prediction:
    return Prediction(number, gold.long, score, gold.shorts, score, gold.yes_no)


def is_correct(gold: tuple[Annotation, ...], prediction: Prediction) -> bool:
    verdict = judge(example(1, *gold), prediction).verdict
    return verdict in (Verdict.RIGHT, Verdict.NULL)


any_annotation = st.sampled_from([NO_ANSWER, LONG, SHORT, TWO, YES])


@given(st.lists(any_annotation, min_size=1, max_size=8), st.booleans())
def test_gold_as_predictions_is_perfect(golds: list[Annotation], with_bytes: bool) -> None:
    evaluation = Evaluation()
    for number, gold in enumerate(golds):
        item = example(number, gold, with_bytes=with_bytes)
        judgment = judge(item, as_prediction(number, gold))
        evaluation.add(judgment)
        assert judgment.verdict is (Verdict.NULL if gold == NO_ANSWER else Verdict.RIGHT)
    metrics = evaluation.metrics()
    expected = {"long": any(g.long for g in golds)}
    expected["short"] = any(g.has_short for g in golds)
    for kind, has_gold in expected.items():
        f1 = metrics[f"{kind}-answer-f1"], metrics[f"{kind}-best-threshold-f1"]
        assert f1 == (float(has_gold), float(has_gold))
    for name in ("micro_f1", "micro_f1_best", "kaggle_micro_f1"):
        assert metrics[name] == float(any(expected.values()))
    assert metrics["long-answer-n"] == len(golds)


def test_metrics_are_those_of_the_evaluation_of_the_files(tmp_path: Path) -> None:
    pairs = [(SHORT, SHORT), (TWO, SHORT), (NO_ANSWER, LONG), (YES, YES), (LONG, NO_ANSWER)]
    evaluation, lines, predictions = Evaluation(), list[str](), list[dict[str, Any]]()
    for number, (gold, answer) in enumerate(pairs):
        item = example(number, gold, with_bytes=True)
        prediction = as_prediction(number, answer, number / 4)
        evaluation.add(judge(item, prediction))
        predictions.append(encode_prediction(prediction, BYTES))
        as_gold = encode_prediction(as_prediction(number, gold), BYTES)
        lines.append(json.dumps({"example_id": number, "annotations": [as_gold]}))
    write_predictions(tmp_path / "predictions.json", predictions)
    (tmp_path / "gold.jsonl").write_text("\n".join(lines), encoding="utf-8")
    expected = nq_eval.score(
        official.read_gold(tmp_path / "gold.jsonl"),
        official.read_predictions(tmp_path / "predictions.json"),
        one_annotator=True,
    )
    assert evaluation.metrics() == expected
    assert 0 < expected["micro_f1"] < 1


def test_one_place_of_gold_that_is_text_is_enough(tmp_path: Path, commands: Commands) -> None:
    """Alternatives in ``answers`` are no annotators of whom two must agree."""
    context = "Ada Brenn built it. Brenn died."
    golds: list[list[str]] = [["Ada Brenn"], ["Ada Brenn", "Ada B."], ["Ada Brenn", "Brenn"], []]
    rows = [
        {"id": n, "question": "who", "context": context, "answers": gold}
        for n, gold in enumerate(golds)
    ]
    rows.append({"id": 9, "question": "who", "answers": ["Tom"], "ctxs": [{"text": context}]})
    gold = write_lines(tmp_path / "gold.jsonl", rows)
    right = [
        Prediction(n, long=Span(0, 10), long_score=1, shorts=(Span(1, 3),), short_score=1)
        for n in range(3)
    ]
    predictions = [encode_prediction(one) for one in (*right, Prediction(3), Prediction(9))]
    write_predictions(path := tmp_path / "predictions.json", predictions)
    files = ["--gold_path", gold, "--predictions_path", path]
    metrics = json.loads(commands.out("eval", *files))
    assert commands.err == ""
    for name in ("long-answer-recall", "short-answer-recall", "long-best-threshold-recall"):
        assert metrics[name] == 0.75  # of four questions with an answer
    assert metrics["micro_f1"] == metrics["all-answer-f1"] == pytest.approx(6 / 7)
    assert metrics == json.loads(commands.out("eval", *files, "--one_annotator"))
    assert metrics == evaluate([gold], path)


def test_the_ids_of_questions_are_those_in_the_predictions(tmp_path: Path) -> None:
    """Reports and comparisons find the predictions of examples by their ids."""
    keys = ["7", "007", "1_1", " 5", "+5", "5", "\uff17", "-0", str(2**64), "1e3", "q-1"]
    rows = ["id,question,context,answer", *(f"{key},who,Ada,Ada" for key in keys)]
    (gold := tmp_path / "gold.csv").write_text("\n".join(rows), encoding="utf-8")
    read = [item.example_id for item in read_examples(gold)]
    write_predictions(path := tmp_path / "predictions.json", gold_as_predictions(gold))
    assert list(map(str, read)) == keys and list(official.read_predictions(path)) == read
    metrics = evaluate([gold], path)
    assert (metrics["micro_f1"], metrics["long-answer-n"]) == (1, len(keys))


@given(st.lists(any_annotation, min_size=1, max_size=5), any_annotation)
def test_a_prediction_is_correct_if_it_is_an_accepted_answer(
    golds: list[Annotation], answer: Annotation
) -> None:
    accepted = accepted_answers(example(1, *golds))
    for gold in accepted:
        assert is_correct(tuple(golds), as_prediction(1, gold)) is True
    if any(gold.has_short for gold in accepted):
        expected = (answer.shorts, answer.yes_no) in [(g.shorts, g.yes_no) for g in accepted]
    else:
        expected = answer.long in ([gold.long for gold in accepted] or [None])
    assert is_correct(tuple(golds), as_prediction(1, answer)) is expected


def test_empty_gold_spans_do_not_stop_the_run() -> None:
    empty = Annotation(Span(3, 3), 0, (Span(4, 4),), YesNo.NONE)
    assert is_correct((empty,), Prediction(1)) is True
    gold = Annotation(Span(0, 2), None, (), YesNo.NONE)
    backwards = np.array([[9, 11], [2, 4]])
    item = Example(3, "who", ["a", "b"], [False, False], (), (gold,), backwards)
    assert judge(item, as_prediction(3, gold)).verdict is Verdict.RIGHT


ELSEWHERE = replace(SHORT, shorts=(Span(15, 16),))
OTHER_BLOCK = replace(LONG, long=Span(12, 18))
NOT_YES = replace(YES, yes_no=YesNo.NO)


@pytest.mark.parametrize(
    ("gold", "given", "verdict"),
    [
        (SHORT, replace(SHORT, long=None), Verdict.RIGHT),
        (LONG, SHORT, Verdict.RIGHT),
        (SHORT, LONG, Verdict.PASSAGE),
        (YES, SHORT, Verdict.PASSAGE),
        (YES, NOT_YES, Verdict.WRONG),
        (YES, OTHER_BLOCK, Verdict.WRONG),
        (SHORT, ELSEWHERE, Verdict.WRONG),
        (LONG, replace(SHORT, long=None), Verdict.WRONG),
        (YES, NO_ANSWER, Verdict.MISSED),
        (NO_ANSWER, replace(SHORT, long=None), Verdict.EXTRA),
        (("word word",), SHORT, Verdict.RIGHT),
        (("words",), SHORT, Verdict.WRONG),
        ((), LONG, Verdict.EXTRA),  # a passage is an answer too
        ((), NO_ANSWER, Verdict.NULL),
    ],
)
def test_each_answer_has_one_verdict(
    gold: Annotation | tuple[str, ...], given: Annotation, verdict: Verdict
) -> None:
    item = example(1, gold) if isinstance(gold, Annotation) else replace(example(1), answers=gold)
    evaluation = Evaluation()
    evaluation.add(judge(item, as_prediction(1, given)))
    evaluation.add(judge(example(2), as_prediction(2, given)))
    assert evaluation.verdicts == {**dict.fromkeys(Verdict, 0), verdict: 1}


NO_PASSAGE = replace(YES, long=None, candidate=None)


@pytest.mark.parametrize(
    ("given", "verdict", "long_f1"),
    [
        (YES, Verdict.RIGHT, 1),
        (NO_PASSAGE, Verdict.RIGHT, 0),
        (LONG, Verdict.PASSAGE, 1),
        (NOT_YES, Verdict.WRONG, 1),
        (replace(SHORT, long=None), Verdict.WRONG, 0),
    ],
)
def test_yes_as_text_names_no_passage_so_that_every_one_is_right(
    given: Annotation, verdict: Verdict, long_f1: float
) -> None:
    item, evaluation = replace(example(1, NO_PASSAGE), answers=("yes",)), Evaluation()
    evaluation.add(judge(item, as_prediction(1, given)))
    assert evaluation.verdicts[verdict] == 1
    assert evaluation.metrics()["long-answer-f1"] == long_f1
    placed = replace(item, annotations=(NO_PASSAGE, YES))  # another answer has its place
    other = judge(placed, as_prediction(1, OTHER_BLOCK))
    assert other.verdict is Verdict.WRONG


@given(
    st.lists(any_annotation, max_size=3),
    st.none() | st.lists(st.sampled_from(["yes", "The", "word word", "moon"]), max_size=2),
    any_annotation,
)
def test_the_verdict_tells_whether_there_is_an_answer(
    golds: list[Annotation], answers: list[str] | None, given: Annotation
) -> None:
    """Right, passage, wrong and extra add up to the questions that are answered."""
    item = replace(example(1, *golds), answers=None if answers is None else tuple(answers))
    prediction = as_prediction(1, given)
    verdict = judge(item, prediction).verdict
    if verdict is not None:
        assert (verdict in list(Verdict)[:4]) == prediction.answered


def gold_as_predictions(file: Path) -> list[Mapping[str, Any]]:
    """Returns predictions that repeat the first annotator's answers in a file."""
    return [
        encode_prediction(as_prediction(item.example_id, item.annotations[0]), item.token_bytes)
        for item in read_examples(file)
        if item.annotations
    ]


def test_files_of_gold_and_predictions_are_evaluated(tmp_path: Path) -> None:
    predictions = tmp_path / "predictions.json"
    write_predictions(predictions, gold_as_predictions(bundled_sample()))
    for gold in (bundled_sample(), str(bundled_sample()), bundled_sample().parent):
        metrics = evaluate([gold], predictions)
        assert (metrics["micro_f1"], metrics["long-answer-n"]) == (1.0, 40)
    both = evaluate([bundled_sample()] * 2, str(predictions))
    assert both == metrics  # the first of an id counts


@pytest.mark.parametrize("ids", [["a"], ["a", "b", "c"]])
def test_gold_texts_need_one_prediction_each(ids: list[str], tmp_path: Path) -> None:
    record = {"question": "who", "context": "It is Ada.", "answers": ["Bea"]}
    gold = write_lines(tmp_path / "gold.jsonl", [{"id": i, **record} for i in "ab"])
    predictions = tmp_path / "predictions.json"
    write_predictions(predictions, [encode_prediction(Prediction(i)) for i in ids])
    with pytest.raises(ValueError, match=r"gold \(2\)"):
        evaluate([gold], predictions)
