"""Tests of the evaluation, against counts by hand, official results and a slow implementation."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.commands.eval import main
from nq.evaluation import nq_eval
from nq.evaluation.labels import ExampleId, Label, LabelSpan, read_gold, read_predictions
from nq.evaluation.nq_eval import Decision
from nq.formats.fields import same_id
from tests.child_processes import python
from tests.conftest import Commands

Gold = dict[ExampleId, list[Label]]
Predictions = dict[ExampleId, Label]


def span(text: str) -> LabelSpan:
    """Returns the tokens [3, 5) for ``3-5``, a null span for an empty text."""
    start, end = map(int, text.split("-")) if text else (-1, -1)
    return LabelSpan(start_token=start, end_token=end)


def label(text: str, long_score: float = 0.0, short_score: float = 0.0) -> Label:
    """Parses ``long short short … yes/no``, as in ``"3-9 4-5 NONE"``; ``.`` is null."""
    long, *short, yes_no = text.split()
    spans = tuple(map(span, short))
    return Label(span(long.strip(".")), spans, yes_no.lower(), long_score, short_score)


def record(label: Label) -> dict[str, Any]:
    """Returns a label as annotation and prediction files encode it."""

    def encode(s: LabelSpan) -> dict[str, int]:
        names = ("start_byte", "end_byte", "start_token", "end_token")
        return dict(zip(names, (*s.bytes, *s.tokens), strict=True))

    return {
        "long_answer": encode(label.long),
        "short_answers": [encode(s) for s in label.short],
        "yes_no_answer": label.yes_no.upper(),
    }


def gold_line(example_id: Any, labels: Sequence[Label]) -> bytes:
    line = {"example_id": example_id, "annotations": [record(x) for x in labels]}
    return json.dumps(line).encode() + b"\n"


def gold_bytes(gold: Mapping[Any, Sequence[Label]]) -> bytes:
    return b"".join(gold_line(i, labels) for i, labels in gold.items())


def prediction_bytes(predictions: Mapping[Any, Label]) -> bytes:
    records = [
        {"example_id": i, "long_answer_score": x.long_score, "short_answers_score": x.short_score}
        | record(x)
        for i, x in predictions.items()
    ]
    return json.dumps({"predictions": records}).encode()


SCORES = st.sampled_from([-2.0, 0.0, 0.5, 3.0]) | st.integers(-3, 3) | st.floats(-9, 9)
DECISIONS = st.lists(
    st.tuples(st.sampled_from(["miss", "wrong", "right", "extra", "none"]), SCORES).map(
        lambda pair: decision(*pair)
    ),
    max_size=25,
)


def decision(kind: str, score: float) -> Decision:
    has_gold = kind in ("miss", "wrong", "right")
    predicted = kind in ("wrong", "right", "extra")
    return Decision(has_gold, predicted, kind == "right", score)


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (LabelSpan(1, 2, 3, 4), LabelSpan(1, 2, 3, 4), True),
        (LabelSpan(1, 2, 3, 4), LabelSpan(1, 2, 8, 9), True),
        (LabelSpan(1, 2, 3, 4), LabelSpan(7, 9, 3, 4), True),
        (LabelSpan(1, 2, 3, 4), LabelSpan(-1, -1, 3, 4), True),
        (LabelSpan(1, 2, -1, -1), LabelSpan(-1, -1, 1, 2), False),
        (LabelSpan(1, 2, 3, 4), LabelSpan(1, 3, 3, 5), False),
        (LabelSpan(), LabelSpan(), False),
    ],
)
def test_spans_are_equal_by_bytes_or_tokens(a: LabelSpan, b: LabelSpan, equal: bool) -> None:
    assert a.matches(b) is equal
    assert b.matches(a) is equal


@pytest.mark.parametrize(
    ("gold", "predicted", "equal"),
    [
        (". 1-2 3-4 NONE", ". 3-4 1-2 NONE", True),
        (". 1-2 1-2 NONE", ". 1-2 NONE", True),
        (". 1-2 3-4 NONE", ". 1-2 NONE", False),
        (". 1-2 NONE", ". 1-2 3-4 NONE", False),
        (". YES", ". YES", True),
        (". YES", ". NO", False),
        (". YES", ". 1-2 NONE", False),
        (". 1-2 NONE", ". YES", False),
    ],
)
def test_short_answers_are_equal_as_sets_or_by_yes_no(
    gold: str, predicted: str, equal: bool
) -> None:
    metrics = nq_eval.score({1: [label(gold)] * 2}, {1: label(predicted)})
    assert metrics["short-answer-f1"] == equal


@pytest.mark.parametrize(
    ("annotators", "settings", "f1"),
    [
        (["1-2 NONE", "3-4 NONE", ". NONE"], {}, 1),
        (["1-2 NONE", ". NONE", ". NONE"], {}, 0),
        (["1-2 NONE", ". NONE", ". NONE"], {"one_annotator": True}, 0),
        (["1-2 NONE", ". NONE", ". NONE"], {"long_non_null_threshold": 1}, 1),
        (["1-2 NONE"], {}, 0),
        (["1-2 NONE"], {"one_annotator": True}, 1),
        (["1-2 NONE"], {"long_non_null_threshold": 1}, 1),
    ],
)
def test_gold_needs_enough_annotators(
    annotators: list[str], settings: dict[str, Any], f1: int
) -> None:
    gold: Gold = {1: [label(x) for x in annotators]}
    metrics = nq_eval.score(gold, {1: label("1-2 NONE")}, **settings)
    assert metrics["long-answer-f1"] == f1
    assert metrics["micro_f1"] == 1


def test_three_micro_f1s_by_hand() -> None:
    gold: Gold = {i: [label("1-9 2-3 NONE")] for i in range(4)}
    predictions: Predictions = {
        0: label("1-9 2-3 NONE", 5, 5),  # both right
        1: label("1-9 3-4 NONE", 4, 1),  # long right, short wrong
        2: label("5-9 NONE", 1, 0),  # long wrong, short missed
        3: label(". NONE"),  # both missed
    }
    metrics = nq_eval.score(gold, predictions)
    # 3 correct of 5 predicted of 8; below the best thresholds (4 and 5) fall the two wrong ones;
    # Kaggle: 3 right, 2 wrong, 3 missed
    assert metrics["micro_f1"] == pytest.approx(2 * 3 / (5 + 8))
    assert metrics["micro_f1_best"] == pytest.approx(2 * 3 / (3 + 8))
    assert metrics["kaggle_micro_f1"] == pytest.approx(2 * 3 / (2 * 3 + 2 + 3))
    assert metrics["all-answer-f1"] == 0  # one annotator is not enough for the official rule


# Annotations, prediction, its long and its short score.
FROZEN: list[tuple[list[str], str, float, float]] = [
    (["3-4 YES", "0-1 NO", "1-2 4-5 NONE"], "3-4 YES", 3.5, 2.25),
    (["4-5 YES"], "4-5 1-3 5-7 NONE", 7.375, 2.0),
    ([". 0-2 NONE", "2-4 0-2 NONE", ". 3-4 NONE"], "2-4 0-2 NONE", -1.5, 3.5),
    ([". NONE"], ". NONE", 0.25, -1.5),
    ([". NONE", ". 3-4 NONE", ". 1-3 NONE", "2-4 NONE", "3-4 1-2 NONE"], ". 1-3 NONE", 0.25, 6.625),
    (["2-3 4-5 3-5 NONE", "3-4 0-1 NONE", ". 0-2 NONE"], "2-3 4-5 3-5 NONE", 3.5, 2.0),
    (["3-4 NO", "3-5 1-2 NONE", "5-7 1-2 1-3 NONE"], ". 4-6 NONE", 2.0, 2.0),
    (["1-3 1-2 3-4 NONE", ". 0-1 2-4 NONE"], ". 0-1 2-4 NONE", 2.0, 3.5),
    (["5-7 NONE"], "5-7 NONE", 2.0, 3.5),
    (
        ["0-1 0-1 NONE", "3-4 3-5 1-2 NONE", ". NONE", "0-1 1-2 NONE", ". 4-6 NONE"],
        "3-4 NO",
        9.25,
        6.625,
    ),
    (["4-5 NONE", "4-5 NONE"], "4-5 NONE", 8.25, 3.5),
    (["0-1 0-2 NONE"], "0-1 0-2 NONE", 0.25, 2.0),
    (["1-3 NO", ". 0-1 NONE"], "0-1 NONE", 0.25, 0.25),
    ([". NONE", "3-4 NONE", "1-3 NONE", "3-4 5-7 NONE", ". 5-6 NONE"], "4-6 0-1 NONE", -1.5, 2.0),
]
# The results of the official scripts (and of yorko's adaption, for all-answer).
OFFICIAL = {
    "long-best-threshold-f1": 0.6666666666666666,
    "long-best-threshold-precision": 0.8,
    "long-best-threshold-recall": 0.5714285714285714,
    "long-best-threshold": 3.5,
    "long-recall-at-precision>=0.5": 0.5714285714285714,
    "long-precision-at-precision>=0.5": 0.8,
    "long-recall-at-precision>=0.75": 0.5714285714285714,
    "long-precision-at-precision>=0.75": 0.8,
    "long-recall-at-precision>=0.9": 0.2857142857142857,
    "long-precision-at-precision>=0.9": 1.0,
    "short-best-threshold-f1": 0.5714285714285714,
    "short-best-threshold-precision": 0.8,
    "short-best-threshold-recall": 0.4444444444444444,
    "short-best-threshold": 2.25,
    "short-recall-at-precision>=0.5": 0.5555555555555556,
    "short-precision-at-precision>=0.5": 0.5,
    "short-recall-at-precision>=0.75": 0.4444444444444444,
    "short-precision-at-precision>=0.75": 0.8,
    "short-recall-at-precision>=0.9": 0,
    "short-precision-at-precision>=0.9": 0,
    "long-answer-n": 14,
    "long-answer-f1": 0.47058823529411764,
    "long-answer-precision": 0.4,
    "long-answer-recall": 0.5714285714285714,
    "short-answer-n": 14,
    "short-answer-f1": 0.5263157894736842,
    "short-answer-precision": 0.5,
    "short-answer-recall": 0.5555555555555556,
    "all-answer-n": 28,
    "all-answer-f1": 0.5,
    "all-answer-precision": 0.45,
    "all-answer-recall": 0.5625,
}
# The same with --long_non_null_threshold=1 --short_non_null_threshold=1, where they differ.
OFFICIAL_ONE_ENOUGH = {
    "long-best-threshold-f1": 0.6956521739130435,
    "long-best-threshold": -1.5,
    "short-best-threshold-f1": 0.5714285714285713,
    "short-best-threshold": 2.0,
    "short-recall-at-precision>=0.75": 0.36363636363636365,
    "long-answer-f1": 0.6956521739130435,
    "short-answer-f1": 0.5714285714285713,
    "all-answer-f1": 0.6363636363636365,
    "all-answer-precision": 0.7,
    "all-answer-recall": 0.5833333333333334,
}


def frozen() -> tuple[Gold, Predictions]:
    gold: Gold = {i: [label(x) for x in row[0]] for i, row in enumerate(FROZEN)}
    return gold, {i: label(*row[1:]) for i, row in enumerate(FROZEN)}


def test_metrics_equal_the_official_script_exactly() -> None:
    metrics = nq_eval.score(*frozen())
    assert {key: metrics[key] for key in OFFICIAL} == OFFICIAL
    assert list(metrics) == [*OFFICIAL, *nq_eval.MICRO_METRICS]
    assert metrics["micro_f1"] == OFFICIAL_ONE_ENOUGH["all-answer-f1"]


def test_metrics_equal_the_official_script_if_one_annotator_is_enough() -> None:
    metrics = nq_eval.score(*frozen(), long_non_null_threshold=1, short_non_null_threshold=1)
    assert {key: metrics[key] for key in OFFICIAL_ONE_ENOUGH} == OFFICIAL_ONE_ENOUGH


def slow_metrics(items: Sequence[Decision], threshold: float) -> tuple[float, float, float]:
    """Returns F1, precision and recall of the predictions that score at least ``threshold``."""
    predicted = [d for d in items if d.predicted and d.score >= threshold]
    correct = len([d for d in predicted if d.correct])
    n_gold = len([d for d in items if d.has_gold])
    precision = correct / len(predicted) if predicted else 0.0
    recall = correct / n_gold if n_gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return f1, precision, recall


@given(DECISIONS)
def test_sweep_equals_the_metrics_at_every_threshold(items: list[Decision]) -> None:
    slow = [(t, *slow_metrics(items, t)) for t in sorted({d.score for d in items}, reverse=True)]
    points = nq_eval.sweep(items)
    assert [(p.threshold, p.f1, p.precision, p.recall) for p in points] == slow

    best = (0.0, 0.0, 0.0, 0.0)
    for row in slow:
        best = row if row[1] > best[1] else best
    top = nq_eval.best(points)
    assert (top.threshold, top.f1, top.precision, top.recall) == best

    for target in nq_eval.PRECISION_TARGETS:
        recall = max((row[3] for row in slow if row[2] >= target), default=0)
        point = nq_eval.at_precision(points, target)
        assert (point.recall if point else 0) == recall
        assert point is None or point.precision >= target


def test_different_ids_are_a_value_error_that_names_them() -> None:
    gold: Gold = {i: [Label()] for i in range(7)}
    predictions: Predictions = {6: Label(), 70: Label(), 80: Label()}
    with pytest.raises(ValueError, match="differ") as error:
        nq_eval.score(gold, predictions)
    assert "gold (7) and predictions (3)" in str(error.value)
    assert "6 (0, 1, 2, 3, 4, …) missing from the predictions" in str(error.value)
    assert "2 (70, 80) extra" in str(error.value)


def test_simplified_gold_without_bytes_and_with_text_ids_is_read(tmp_path: Path) -> None:
    annotation = {
        "long_answer": {"start_token": 1, "end_token": 9, "candidate_index": 0},
        "short_answers": [{"start_token": 2, "end_token": 3}],
        "yes_no_answer": "None",
    }
    path = tmp_path / "simplified.jsonl"
    path.write_text(json.dumps({"example_id": "-12", "annotations": [annotation]}))
    assert read_gold(path) == {-12: [label("1-9 2-3 NONE")]}


IDS = [7, "007", "7_0", " 7", "+7", "\uff17", "-0", 1.5, 7e300, "q\ud800"]
IDS += [2**64, 2**64 + 1, -(2**63) - 1]


def test_ids_are_neither_rounded_nor_joined(tmp_path: Path, commands: Commands) -> None:
    gold, predictions = tmp_path / "gold.jsonl", tmp_path / "p.json"
    right = label("1-9 2-3 NONE")
    gold.write_bytes(b"\n".join(gold_line(key, [right]) for key in IDS))
    predictions.write_bytes(prediction_bytes(dict.fromkeys(reversed(IDS), right)))
    assert list(read_gold(gold)) == [same_id(key) for key in IDS]
    arguments = [f"--gold_path={gold}", f"--predictions_path={predictions}", "--one_annotator"]
    metrics = json.loads(commands.out("eval", *arguments))
    assert (metrics["micro_f1"], metrics["long-answer-n"]) == (1, len(IDS))


@given(
    st.integers() | st.text(max_size=3) | st.integers().map(str) | st.from_regex(r"[-+0-9_ ]{1,4}")
)
def test_an_id_and_what_is_written_of_it_are_the_same(key: int | str) -> None:
    """Two ids are the same only if their texts are equal, and orjson can write each."""
    assert str(same_id(key)) == str(key)
    assert same_id(str(key)) == same_id(key) == same_id(same_id(key))
    assert orjson.loads(orjson.dumps(same_id(key))) == same_id(key)


@pytest.mark.parametrize("field", ["long_answer_score", "short_answers_score"])
def test_a_null_score_ranks_last(
    field: str, files: tuple[str, str], tmp_path: Path, commands: Commands
) -> None:
    """The official script, written for Python 2, sorts null behind all numbers."""
    path = tmp_path / "predictions.json"
    document = json.loads(path.read_bytes())
    for step in (1, 2):
        metrics = []
        for value in (None, -1e300):
            for record in document["predictions"][::step]:
                record[field] = value
            path.write_text(json.dumps(document))
            metrics.append(json.loads(commands.out("eval", *files)))
        first, second = metrics
        assert first == {name: None if x == -1e300 else x for name, x in second.items()}


def test_spans_without_bytes_are_counted(
    files: tuple[str, str], tmp_path: Path, commands: Commands
) -> None:
    path = tmp_path / "predictions.json"
    commands.out("eval", *files)
    assert "lack start_byte" not in commands.err
    document = json.loads(path.read_bytes())
    for record in document["predictions"][:3]:
        del record["long_answer"]["start_byte"], record["long_answer"]["end_byte"]
    del document["predictions"][4]["long_answer"]  # which the official script takes
    path.write_text(json.dumps(document))
    commands.out("eval", *files)
    assert "nq eval: note: 3 spans lack start_byte" in commands.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[" * 100_000, "not JSON"),
        ("[1]", "record must be an object, found an array"),
        ('{"example_id": null, "annotations": []}', "field 'example_id' must be an integer"),
        ('{"example_id": 1, "annotations": []}', "no 'annotations'"),
        ('{"example_id": 1, "annotations": [{}]}', "missing field 'long_answer'"),
        ('{"example_id": 1, "annotations": [{"long_answer": {"end_byte": 3}}]}', ".* half null"),
    ],
)
def test_a_bad_gold_line_is_a_value_error_with_its_number(
    tmp_path: Path, line: str, message: str
) -> None:
    path = tmp_path / "gold.jsonl"
    path.write_bytes(gold_line(1, [Label()]) + b"\n" + line.encode())
    with pytest.raises(ValueError, match=rf"gold\.jsonl:3: {message}"):
        read_gold(path)


def write_predictions(path: Path, *records: dict[str, Any]) -> Path:
    scores = {"long_answer_score": 1.5, "short_answers_score": 2}
    path.write_text(json.dumps({"predictions": [scores | r for r in records]}))
    return path


def test_predictions_may_lack_answers_and_repeat(tmp_path: Path) -> None:
    wanted = {"start_byte": -1, "end_byte": -1, "start_token": 2, "end_token": 4}
    path = write_predictions(
        tmp_path / "p.json",
        {"example_id": "5", "yes_no_answer": "Yes"},
        {"example_id": 6, "long_answer": None, "short_answers": [{"start_byte": -1}]},
        {"example_id": 5, "long_answer": wanted},
    )
    labels = read_predictions(path)
    assert labels == {
        5: label("2-4 NONE", 1.5, 2),
        6: Label(LabelSpan(), (LabelSpan(),), "none", 1.5, 2),
    }


@pytest.mark.parametrize(
    ("prediction", "message"),
    [
        ({"short_answers_score": "1"}, "field 'short_answers_score' must be .*, found a string"),
        ({"long_answer_score": float("nan")}, "NaN"),
        ({"yes_no_answer": "perhaps"}, "yes_no_answer is 'perhaps', expected YES, NO or NONE"),
        ({"short_answers": {}}, "field 'short_answers' must be an array or null, found an object"),
        (
            {"yes_no_answer": "NO", "short_answers": [{"start_token": 1, "end_token": 2}]},
            "both yes_no_answer NO",
        ),
    ],
)
def test_a_bad_prediction_is_a_value_error_with_its_index(
    tmp_path: Path, prediction: dict[str, Any], message: str
) -> None:
    path = write_predictions(tmp_path / "p.json", {"example_id": 1}, {"example_id": 2} | prediction)
    with pytest.raises(ValueError, match=rf"p\.json: predictions\[1\]: .*{message}"):
        read_predictions(path)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    gold, predictions = frozen()
    (tmp_path / "gold.jsonl.gz").write_bytes(gzip.compress(gold_bytes(gold)))
    (tmp_path / "predictions.json").write_bytes(prediction_bytes(predictions))
    return f"--gold_path={tmp_path}/gold*", f"--predictions_path={tmp_path}/predictions.json"


def test_command_prints_one_json_object(files: tuple[str, str]) -> None:
    process = python("-m", "eval.nq_eval", *files)
    assert process.returncode == 0
    assert process.stderr.startswith("nq_eval: note: 4 of 14 examples have fewer than 2 annotators")
    assert json.loads(process.stdout) == nq_eval.score(*frozen())


TABLE = """\
********************
LONG ANSWER R@P TABLE:
Optimal threshold: 3.5
 F1     /  P      /  R
 66.67% /  80.00% /  57.14%
R@P=0.5: 57.14% (actual p=80.00%, score threshold=3.5)
R@P=0.75: 57.14% (actual p=80.00%, score threshold=3.5)
R@P=0.9: 28.57% (actual p=100.00%, score threshold=8.25)
********************
SHORT ANSWER R@P TABLE:
Optimal threshold: 2.25
 F1     /  P      /  R
 57.14% /  80.00% /  44.44%
R@P=0.5: 55.56% (actual p=50.00%, score threshold=2.0)
R@P=0.75: 44.44% (actual p=80.00%, score threshold=2.25)
R@P=0.9: 0.00% (actual p=0.00%, score threshold=None)
********************
METRICS IGNORING SCORES (n=14):
              F1     /  P      /  R
Long answer   47.06% /  40.00% /  57.14%
Short answer  52.63% /  50.00% /  55.56%
All answers   50.00% /  45.00% /  56.25%
********************
micro_f1: 63.64%
"""


def test_pretty_print(files: tuple[str, str], commands: Commands) -> None:
    assert commands.out("eval", "--pretty_print=T", *files).startswith(TABLE)


@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        (["--pretty_print", "--nopretty_print", "--cache_gold_data", "--num_threads", "3"], {}),
        (["--nocache_gold_data", "--pretty_print=false", "--noone_annotator"], {}),
        (["--one_annotator"], {"one_annotator": True}),
        (["--long_non_null_threshold=1"], {"long_non_null_threshold": 1}),
        (["--short_non_null_threshold", "1"], {"short_non_null_threshold": 1}),
    ],
)
def test_official_flags(
    files: tuple[str, str], flags: list[str], settings: dict[str, Any], commands: Commands
) -> None:
    metrics = json.loads(commands.out("eval", *files, *flags))
    assert metrics == nq_eval.score(*frozen(), **settings)
    assert (metrics == nq_eval.score(*frozen())) == (not settings)


@pytest.mark.parametrize("args", [[], ["--pretty_print=maybe"], ["--gold=x"]])
def test_bad_arguments_exit_with_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--gold_path=x", "--predictions_path=y", *args] if args else [])
    assert stop.value.code == 2
    assert "usage: nq eval" in capsys.readouterr().err


def test_empty_files_score_zero(tmp_path: Path, commands: Commands) -> None:
    gold, predictions = tmp_path / "gold.jsonl", tmp_path / "p.json"
    gold.write_bytes(b"")
    arguments = [f"--gold_path={gold}", f"--predictions_path={predictions}"]
    commands.out("eval", *arguments, code=1)
    assert "p.json" in commands.err
    predictions.write_text('{"predictions": []}')
    assert "All answers" in commands.out("eval", *arguments, "--pretty_print")
    assert set(json.loads(commands.out("eval", *arguments)).values()) == {0}
