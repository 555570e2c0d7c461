"""Tests the fitting of the decision: which examples it may use, and the thresholds."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.bundle import bundled_sample
from nq.config import DecisionConfig
from nq.evaluation import nq_eval, tuning
from nq.model.model import Model
from nq.runs.job import Job
from tests.support.jobs import scoring
from tests.support.nq_records import write_lines

NO_ANSWER = {
    "yes_no_answer": "NONE",
    "long_answer": {"start_token": -1, "end_token": -1, "candidate_index": -1},
    "short_answers": [],
}
Tune = Callable[..., tuning.Tuned]


@pytest.fixture(scope="module")
def tune_without(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Tune:
    """Returns a function that tunes on the sample, without the gold answers of some ids."""

    @cache
    def tune_without(*removed: int) -> tuning.Tuned:
        folder = tmp_path_factory.mktemp("tuned")
        records = [json.loads(x) for x in bundled_sample().read_text("utf-8").splitlines()]
        for i, record in enumerate(records):
            record["example_id"] = i
            if i in removed:
                record["annotations"] = [{**record["annotations"][0], **NO_ANSWER}]
        file = write_lines(folder / "sample.jsonl", records)
        model = Model.open(tiny_model, decision=DecisionConfig())
        job = Job([file], model, "baseline", output=folder / "run")
        completed: list[int] = []
        with scoring(job, lambda windows, total: completed.append(windows)) as scores:
            tuned = tuning.tune_decision(scores, job.model.decision)
            assert sum(completed) == scores.windows.counts.windows
            return tuned

    return tune_without


@pytest.mark.slow
def test_the_odd_half_does_not_change_the_decision(tune_without: Tune) -> None:
    without_odd = tune_without(*range(1, 40, 2)).decision
    without_even = tune_without(*range(0, 40, 2)).decision
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
    other_folds = [i for i in range(0, 40, 2) if tuning.fold_of(i) != fold]
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
