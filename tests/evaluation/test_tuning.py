"""Tests the fitting of the decision: which examples it may use, and the thresholds."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.bundle import bundled_sample
from nq.config import DecisionConfig, RankingWeights
from nq.evaluation import nq_eval, tuning
from nq.evaluation.official import places
from nq.model.model import Model
from nq.postprocess.decision import decide
from nq.records import Annotation, Example, ExampleId, Prediction, Scores, Span, YesNo
from nq.runs.job import Job
from tests.postprocess import synthetic_pages
from tests.postprocess.test_fit import annotated
from tests.support.jobs import scoring
from tests.support.nq_records import write_lines

RECORDS = 24
NO_ANSWER = {
    "yes_no_answer": "NONE",
    "long_answer": {"start_token": -1, "end_token": -1, "candidate_index": -1},
    "short_answers": [],
}
Tune = Callable[..., tuning.Tuned]


@pytest.fixture(scope="module")
def tune_without(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Tune:
    """Returns a function that tunes on records, without the gold answers of some ids."""

    @cache
    def tune_without(*removed: int) -> tuning.Tuned:
        folder = tmp_path_factory.mktemp("tuned")
        lines = bundled_sample().read_text("utf-8").splitlines()[:RECORDS]
        records = list(map(json.loads, lines))
        for i, record in enumerate(records):
            record["example_id"] = i
            if i in removed:
                record["annotations"] = [{**record["annotations"][0], **NO_ANSWER}]
        file = write_lines(folder / "sample.jsonl", records)
        model = Model.open(tiny_model, decision=DecisionConfig())
        job = Job([file], model, "openvino", output=folder / "run")
        completed: list[int] = []
        with scoring(job, lambda windows, total: completed.append(windows)) as scores:
            tuned = tuning.tune_decision(scores, job.model.decision)
            assert sum(completed) == scores.windows.counts.windows
            return tuned

    return tune_without


@pytest.mark.slow
def test_the_odd_half_does_not_change_the_decision(tune_without: Tune) -> None:
    without_odd = tune_without(*range(1, RECORDS, 2)).decision
    without_even = tune_without(*range(0, RECORDS, 2)).decision
    assert tune_without().decision == without_odd != without_even


@pytest.mark.slow
def test_thresholds_use_predictions_by_weights_fitted_without_the_example(
    tune_without: Tune,
) -> None:
    changed = 4
    before, after = tune_without(), tune_without(changed)
    assert before.decision.weights.null != after.decision.weights.null
    scores = [{i: p.long_score for i, p in t.predictions.items()} for t in (before, after)]
    assert scores[0][changed] == scores[1][changed]
    fold = tuning.fold_of(changed)
    other_folds = [i for i in range(0, RECORDS, 2) if tuning.fold_of(i) != fold]
    assert any(scores[0][i] != scores[1][i] for i in other_folds)


decisions = st.builds(
    nq_eval.Decision,
    has_gold=st.booleans(),
    predicted=st.just(True),
    correct=st.booleans(),
    score=st.integers(10, 990).map(lambda n: n / 1000),
)


@given(st.lists(decisions, min_size=2, max_size=40))
def test_a_threshold_is_a_gap_as_good_as_the_best(drawn: list[nq_eval.Decision]) -> None:
    points = nq_eval.sweep(drawn)
    best = nq_eval.best(points).f1
    threshold = tuning.best_threshold(drawn)
    above = [point for point in points if point.threshold >= threshold]
    if len(points) > 1 and max(p.f1 for p in points[:-1]) >= best - tuning.SLACK:
        assert above[-1].f1 >= best - tuning.SLACK


def test_of_equally_good_thresholds_the_most_plausible_is_chosen() -> None:
    correct = [nq_eval.Decision(True, True, True, 0.9 - i / 1000) for i in range(300)]
    wrong = [nq_eval.Decision(False, True, False, score) for score in (0.5, 0.3, 0.1)]
    assert nq_eval.best(nq_eval.sweep([*correct, *wrong])).f1 == 1.0
    assert tuning.best_threshold([*correct, *wrong]) == pytest.approx(0.55, abs=1e-3)


# --- a decision that was fitted before

OWN = DecisionConfig(
    long_threshold=0.3,
    short_threshold=0.2,
    says_yes_no=True,
    weights=RankingWeights(evidence=0.4, bm25=0.2, null=0.5, short_evidence=0.6),
)


def scored_pages(first: int, n: int) -> list[tuple[Example, Scores]]:
    """Returns random pages with gold answers and scores, which have nothing to do with them."""
    return [
        (replace(annotated(seed), example_id=2 * seed), synthetic_pages.page(seed)[1])
        for seed in range(first, first + n)
    ]


def answers(scored: list[tuple[Example, Scores]], decision: DecisionConfig) -> nq_eval.Predictions:
    return {
        example.example_id: tuning.accepted(tuning.predicted(example, scores, decision), decision)
        for example, scores in scored
    }


@pytest.mark.parametrize("first", [0, 4, 8, 12])
def test_four_questions_change_few_answers_of_a_fitted_decision(first: int) -> None:
    tuned = tuning.tune_decision(scored_pages(first, 4), OWN).decision
    assert replace(tuned, weights=OWN.weights) == OWN
    others = scored_pages(1000, 200)
    before, after = answers(others, OWN), answers(others, tuned)
    changed = [places(before[key]) != places(after[key]) for key in before]
    assert np.mean(changed) < 0.1


def test_the_figures_have_those_of_the_decision_before() -> None:
    """They are those of answers that the decision gives, on the same half."""
    scored = [
        (replace(example, example_id=number), scores)
        for number, (example, scores) in enumerate(scored_pages(0, 60))
    ]
    gold = tuning.tune_decision(scored, OWN).gold
    odd = {key: gold[key] for key in gold if tuning.fold_of(key) is None}
    start = replace(OWN, rule="default")
    for own in (OWN, DecisionConfig(rule="squad")):
        figures = tuning.tune_decision(scored, start, before=own).figures()
        predictions = {
            example.example_id: decide(example, scores, own).prediction
            for example, scores in scored
        }
        metrics = nq_eval.score(odd, {key: predictions[key] for key in odd}, one_annotator=True)
        for name, key in tuning.GIVEN_F1.items():
            assert figures[f"odd_before_{name}"] == metrics[key]
        assert ("odd_before_long_auc" in figures) == (own is OWN)
    unreadable = tuning.tune_decision(scored, start, before=DecisionConfig(rule="bert-joint"))
    assert unreadable.figures() == tuning.tune_decision(scored, start).figures()


def test_thresholds_move_only_where_others_are_better_beyond_chance() -> None:
    """Every fourth answer is wrong, with a low score."""
    low, high = (replace(OWN, long_threshold=threshold) for threshold in (0.1, 0.6))
    for n, is_better in ((4, False), (400, True)):
        gold: nq_eval.Gold = {}
        predictions: nq_eval.Predictions = {}
        folds: dict[ExampleId, int] = {}
        for key in range(n):
            is_right = key % 4 > 0
            gold[key] = [Annotation(Span(1, 9), None, (), YesNo.NONE)]
            span, score = (Span(1, 9), 0.9) if is_right else (Span(5, 9), 0.4)
            predictions[key] = Prediction(key, span, score)
            folds[key] = key % tuning.FOLDS
        assert tuning.are_others_better(gold, predictions, low, folds) == is_better
        assert not tuning.are_others_better(gold, predictions, high, folds)


def test_few_questions_for_yes_or_no_do_not_change_whether_they_are_said() -> None:
    apart = [(1.0, True), (-1.0, False)]
    for says in (False, True):
        own = replace(OWN, says_yes_no=says)
        for separations in ([], apart, [(-odds, is_yes) for odds, is_yes in apart]):
            assert tuning.tell_yes_from_no(separations, own)[1] == says
        assert tuning.tell_yes_from_no(apart * 10, own) == (1.0, True)
        reverse = [(-odds, is_yes) for odds, is_yes in apart]
        assert tuning.tell_yes_from_no(reverse * 10, own) == (0.0, False)
        unfitted = DecisionConfig(says_yes_no=says)
        assert tuning.tell_yes_from_no(apart, unfitted) == (1.0, True)
        assert tuning.tell_yes_from_no([], unfitted) == (0.5, False)
