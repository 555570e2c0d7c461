"""``nq tune``: what may teach the decision, and what may not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval import labels
from nq import tune
from nq.bundle import bundled_sample
from nq.config import DecisionConfig
from nq.examples import answered_examples
from nq.job import Job, Report
from nq.model.checkpoint import load_settings
from nq.model.profile import Profile
from nq.scored import score_windows
from nq.scoring import gold_label

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
