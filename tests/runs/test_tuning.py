"""``nq tune``: what may teach the decision, and what may not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.bundle import bundled_sample
from nq.commands import tune
from nq.config import DecisionConfig
from nq.evaluation import labels, nq_eval
from nq.inference.profile import Profile
from nq.model.checkpoint import load_settings
from nq.runs.examples import answered_examples
from nq.runs.job import Job, Report
from nq.runs.scored import score_windows
from nq.runs.scoring import gold_label

NOBODY = {
    "yes_no_answer": "NONE",
    "long_answer": {"start_token": -1, "end_token": -1, "candidate_index": -1},
    "short_answers": [],
}
Learnt = tuple[DecisionConfig, tune.Predictions]


@pytest.fixture
def learnt(tiny_model: Path, tmp_path: Path) -> Callable[[Callable[[int], bool]], Learnt]:
    """Learns from the sample, whose questions with such an id lose their answers before."""

    def learn(loses: Callable[[int], bool]) -> Learnt:
        file = tmp_path / "sample.jsonl"
        records = [json.loads(x) for x in bundled_sample().read_text("utf-8").splitlines()]
        for i, record in enumerate(records):
            record["example_id"] = i
            if loses(i):
                record["annotations"] = [{**record["annotations"][0], **NOBODY}]
        file.write_text("".join(json.dumps(r) + "\n" for r in records), "utf-8")
        windows = load_settings(tiny_model).windows
        job = Job((str(file),), tiny_model, Profile(), windows, DecisionConfig(), 16, tmp_path)
        gold = {
            example.example_id: [gold_label(a, example.token_bytes) for a in example.annotations]
            for _, example in answered_examples(job)
            if example.annotations
        }
        with score_windows(job, Report("baseline", Path())) as scored:
            return tune.learn(scored, gold)

    return learn


def before_scaling(decision: DecisionConfig, label: labels.Label) -> float:
    """The log odds of the long answer as the weights gave them."""
    scaled = math.log(label.long_score) - math.log1p(-label.long_score)
    return (scaled - decision.weights.long_shift) / decision.weights.long_scale


def test_the_odd_half_teaches_nothing(learnt: Callable[[Any], Learnt]) -> None:
    everything, _ = learnt(lambda i: False)
    without_odd, _ = learnt(lambda i: i % 2 == 1)
    without_even, _ = learnt(lambda i: i % 2 == 0)
    assert everything == without_odd != without_even


def test_scaling_rests_on_predictions_that_an_example_did_not_teach(
    learnt: Callable[[Any], Learnt],
) -> None:
    one = 4
    before, after = learnt(lambda i: False), learnt(lambda i: i == one)
    assert before[0].weights.null != after[0].weights.null
    mine = [before_scaling(decision, found[one]) for decision, found in (before, after)]
    assert mine[0] == pytest.approx(mine[1], abs=1e-3)
    others = [i for i in range(0, 40, 2) if tune._fold(i) != tune._fold(one)]
    moved = [
        abs(before_scaling(before[0], before[1][i]) - before_scaling(after[0], after[1][i]))
        for i in others
    ]
    assert min(moved) > 1e-3


def test_each_even_example_lies_in_one_fold_and_no_other_in_any() -> None:
    folds = [tune._fold(i) for i in range(-40, 40)]
    assert set(folds[::2]) == set(range(tune.FOLDS))
    assert set(folds[1::2]) == {tune._fold("6a")} == {None}


decisions = st.builds(
    nq_eval.Decision,
    has_gold=st.booleans(),
    predicted=st.just(True),
    correct=st.booleans(),
    score=st.integers(10, 990).map(lambda n: n / 1000),
)


@given(st.lists(decisions, min_size=2, max_size=40))
def test_a_threshold_is_a_gap_as_good_as_the_best(found: list[nq_eval.Decision]) -> None:
    points = nq_eval.sweep(found)
    best = nq_eval.best(points).f1
    threshold = tune._threshold(found)
    above = [point for point in points if point.threshold >= threshold]
    if len(points) > 1 and max(p.f1 for p in points[:-1]) >= best - tune.SLACK:
        assert above[-1].f1 >= best - tune.SLACK


def test_of_equally_good_thresholds_the_likeliest_is_taken() -> None:
    right = [nq_eval.Decision(True, True, True, 0.9 - i / 1000) for i in range(300)]
    wrong = [nq_eval.Decision(False, True, False, score) for score in (0.5, 0.3, 0.1)]
    assert nq_eval.best(nq_eval.sweep([*right, *wrong])).f1 == 1.0
    assert tune._threshold([*right, *wrong]) == pytest.approx(0.55, abs=1e-3)
