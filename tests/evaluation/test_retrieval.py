"""Tests what is told of passages of a retriever: ranks of answers, metrics, losses, NQ-open."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nq
from nq.evaluation.evaluate import Evaluation, judge
from nq.evaluation.nq_eval import Verdict
from nq.evaluation.text_match import TOP
from nq.formats.retrieved import decode
from nq.lab.run_page import write_report
from nq.records import Prediction
from nq.report.judgments import Stage
from tests.conftest import Commands
from tests.support.nq_records import write_lines

WORDS = st.sampled_from(["ada", "Ada", "Brenn", "brenn", "1874", "rain"])
TEXTS = st.lists(WORDS, min_size=1, max_size=5).map(" ".join)
RECORDS = st.lists(st.tuples(st.lists(TEXTS, max_size=30), st.lists(TEXTS, max_size=2)), max_size=6)


def record(key: Any, passages: list[str], answers: list[str]) -> dict[str, Any]:
    ctxs = [{"id": f"p{n}", "title": f"T{n}", "text": text} for n, text in enumerate(passages)]
    return {"id": key, "question": f"who is {key}?", "answers": answers, "ctxs": ctxs}


def slow_rank(passages: list[str], answers: list[str]) -> int:
    """Returns the number of the first passage with the words of an answer, 0 if there is none."""
    phrases = [f" {answer.lower()} " for answer in answers]
    found = [any(p in f" {text.lower()} " for p in phrases) for text in passages]
    return found.index(True) + 1 if True in found else 0


@given(RECORDS)
def test_shares_and_exact_match_are_those_of_a_slow_count(several: list[Any]) -> None:
    evaluation, ranks, exact = Evaluation(), [], []
    for n, (passages, answers) in enumerate(several):
        example = decode(record(n, passages, answers))
        judgment = judge(example, Prediction(n))
        evaluation.add(judgment)
        if answers:
            ranks.append(slow_rank(passages, answers))
            exact.append(False)
            assert judgment.verdict is Verdict.MISSED
            assert judgment.gold is not None
    metrics = evaluation.metrics()
    assert ("retrieval_all" in metrics) == bool(ranks)
    if ranks:
        assert metrics["retrieval_n"] == len(ranks)
        for k in TOP:
            share = sum(0 < rank <= k for rank in ranks) / len(ranks)
            assert metrics[f"retrieval_top_{k}"] == pytest.approx(share)
        share = sum(rank > 0 for rank in ranks) / len(ranks)
        assert metrics["retrieval_all"] == pytest.approx(share)
        assert metrics["retrieved_exact_match"] == 0
        assert metrics["long-answer-n"] == len(several)


PASSAGES = [
    "It rains.",
    "The lighthouse was built by Ada Brenn in 1874.",
    "ada brenn died in 1901.",
]
RETRIEVED = [
    record("a", PASSAGES, ["Ada Brenn"]) | {"question": "Who built the lighthouse?"},
    record("b", PASSAGES[:1], ["Vincent Moss"]) | {"question": "Who painted it?"},
    record("c", [], ["1986"]) | {"question": "When was it automated?"},
]


def test_a_run_tells_what_the_retriever_lost(tmp_path: Path, commands: Commands) -> None:
    data = write_lines(tmp_path / "retrieved.jsonl", RETRIEVED)
    result = nq.run(data, output=tmp_path / "run", formats="nbest,nq-open", track=None)
    metrics = result.metrics
    shares = [metrics[f"retrieval_{name}"] for name in ("top_1", "top_5", "top_20", "all")]
    assert shares == [0, pytest.approx(1 / 3), pytest.approx(1 / 3), pytest.approx(1 / 3)]
    assert metrics["retrieved_exact_match"] == 1
    assert metrics["squad_exact_match"] == pytest.approx(1 / 3)
    assert "answers retrieved 0.333 (top 1 0.000, top 5 0.333," in str(result)
    assert "exact match of these 1.000" in str(result)
    predictions = json.loads((tmp_path / "run" / "predictions.json").read_text())["predictions"]
    assert predictions[0]["passage"] == {"id": "p1", "title": "T1", "rank": 2}
    assert predictions[2]["passage"] is None

    report = write_report(tmp_path / "run")
    assert report.analysis and report.analysis.examples == 3
    for part in report.analysis.kinds.values():
        assert part.bounds[Stage.RETRIEVAL].lost == 2
        assert part.bounds[Stage.RETRIEVAL].recall == pytest.approx(1 / 3)
        assert part.n == 3
    page = report.page.read_text("utf-8")
    assert "2. T1 (p1)" in page and "no passage has the answer" in page

    answers, gold = tmp_path / "run" / "nq_open.jsonl", tmp_path / "NQ-open.jsonl"
    lines = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [line["question"] for line in lines] == [one["question"] for one in RETRIEVED]
    assert lines[0]["prediction"] == "Ada Brenn"
    write_lines(gold, [{"question": r["question"], "answer": r["answers"]} for r in RETRIEVED])
    for path in (gold, data):
        arguments = ["--gold_path", path, "--predictions_path", answers]
        printed = json.loads(commands.out("eval", *arguments))
        assert printed == {n: metrics[n] for n in ("squad_exact_match", "squad_f1", "squad_n")}


def write_nq_open(folder: Path, gold: Any, predictions: Any) -> list[str]:
    """Writes records of gold, and pairs of a question and a prediction; returns the arguments."""
    answers = [{"question": question, "prediction": text} for question, text in predictions]
    paths = write_lines(folder / "gold.jsonl", gold), write_lines(folder / "p.jsonl", answers)
    return ["--gold_path", str(paths[0]), "--predictions_path", str(paths[1])]


SAME: list[dict[str, Any]] = [
    {"question": "who lit it", "answer": ["Ada Brenn"]},
    {"question": "which sign", "answer": ["the star", "*"]},
    {"question": "who lit it", "answer": ["Tom Hale"]},
]


@pytest.mark.parametrize(
    ("answers", "right"),
    [(["Ada Brenn", "Tom Hale"], 3), (["Tom Hale", "Ada Brenn"], 1), (["Tom Hale"], 2)],
)
def test_of_equal_questions_each_counts(
    answers: list[str], right: int, tmp_path: Path, commands: Commands
) -> None:
    """They have one prediction for all, or one each."""
    predictions = [("which sign", "*"), *(("who lit it ", answer) for answer in answers)]
    metrics = json.loads(commands.out("eval", *write_nq_open(tmp_path, SAME, predictions)))
    assert (metrics["squad_n"], metrics["squad_exact_match"]) == (3, pytest.approx(right / 3))
    arguments = write_nq_open(tmp_path, SAME, [*predictions, *predictions[1:] * 2])
    commands.out("eval", *arguments, code=1)
    assert "'who lit it' comes 2 times in gold, but" in commands.err


def test_passages_and_predictions_of_nq_open_have_one_rule(
    tmp_path: Path, commands: Commands
) -> None:
    """Both have the Unicode forms and the answers without words of EfficientQA's evaluator."""
    text = "The A\u030akerlo\u0308f mill"
    example = decode(record("a", [text], ["\u00c5kerl\u00f6f mill", "*"]))
    (gold,) = example.annotations or ()
    (short,) = gold.shorts
    evaluation = Evaluation()
    evaluation.add(judge(example, Prediction("a", shorts=(short,))))
    assert example.text(short) == "A\u030akerlo\u0308f mill"
    metrics = {name: evaluation.metrics()[name] for name in ("squad_exact_match", "squad_f1")}
    assert metrics == {"squad_exact_match": 1, "squad_f1": 1}
    arguments = write_nq_open(
        tmp_path,
        [record("a", [text], list(example.answers or ()))],
        [("who is a?", example.text(short))],
    )
    assert json.loads(commands.out("eval", *arguments)) == metrics | {"squad_n": 1}


@pytest.mark.parametrize(
    ("gold", "prediction", "message"),
    [
        ({"question": "c", "answer": ["b"]}, "b", "1 question"),
        ({"question": "a"}, "b", "no gold"),
        ({"question": "a", "answer": ["b"]}, 1, "prediction"),
        ({"question": 5, "answer": ["b"]}, "b", "line 1"),
    ],
)
def test_bad_files_of_nq_open_are_one_line(
    gold: Any, prediction: Any, message: str, tmp_path: Path, commands: Commands
) -> None:
    arguments = write_nq_open(tmp_path, [gold], [("a", prediction)])
    commands.out("eval", *arguments, code=1)
    assert message in commands.err and commands.err.count("\n") == 1
