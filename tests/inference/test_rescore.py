"""Tests that close decisions are computed again, and become those of float32."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from nq import reader
from nq.bundle import bundled_sample
from nq.config import DecisionConfig, RankingWeights
from nq.errors import Error
from nq.formats import inputs
from nq.formats.predictions import encode_prediction
from nq.inference import load
from nq.inference.profile import Profile
from nq.inference.rescore import CLOSE, RescoringScorer, exact_profile
from nq.runs.job import Job
from nq.runs.result import PREDICTIONS, Result
from nq.runs.run import run
from tests.inference.table_scorer import TableScorer, random_scores

QUESTIONS = 6


def make_job(model: Path, root: Path, profile: str, batch_size: int = 16) -> Job:
    return Job(
        [bundled_sample()], model, profile, batch_size=batch_size, root=root, limit=QUESTIONS
    )


def predictions(result: Result) -> list[dict[str, Any]]:
    encoded: list[dict[str, Any]] = orjson.loads((result.folder / PREDICTIONS).read_bytes())[
        "predictions"
    ]
    return encoded


def assert_equal(actual: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Asserts that predictions are equal, and their scores up to the rounding of float32."""
    assert len(actual) == len(expected) == QUESTIONS
    for prediction, other in zip(actual, expected, strict=True):
        for score in ("long_answer_score", "short_answers_score"):
            assert prediction.pop(score) == pytest.approx(other.pop(score), abs=1e-5)
        assert prediction == other


def rescore_margin(monkeypatch: pytest.MonkeyPatch, margin: float) -> None:
    """Makes the profiles of this test rescore decisions with smaller margins."""
    scorer = partial(RescoringScorer, margins={"mixed": margin})
    monkeypatch.setattr(load, "RescoringScorer", scorer)


# --- the margin of a close decision


@pytest.mark.parametrize(
    ("profile", "evidence", "short_evidence", "margin"),
    [
        ("mixed+rescore", 1.0, 1.0, CLOSE["mixed"]),
        ("mixed+rescore", 0.5, 0.25, 0.5 * CLOSE["mixed"]),
        ("mixed+rescore", 0.5, 2.0, 2.0 * CLOSE["mixed"]),
        ("int8+openvino+rescore", 1.0, 1.0, CLOSE["int8"]),
        ("mixed+int8+openvino+rescore", 0.5, 0.5, 0.5 * CLOSE["int8"]),
    ],
)
def test_the_margin_is_that_of_the_least_exact_optimization_times_the_weight_of_evidence(
    profile: str, evidence: float, short_evidence: float, margin: float
) -> None:
    weights = RankingWeights(evidence=evidence, short_evidence=short_evidence)
    inner = TableScorer(random_scores(np.full((1, 14), -1), seed=1))
    decision = DecisionConfig(weights=weights)
    scorer = RescoringScorer(inner, lambda: inner, Profile.parse(profile), decision)
    assert scorer.close == pytest.approx(margin)


@pytest.mark.parametrize(
    ("profile", "exact"),
    [
        ("mixed+rescore", "baseline"),
        ("mixed+prune+rescore+grappler+buckets", "grappler+buckets"),
        ("int8+openvino+mixed+rescore", "openvino"),
        ("onnx+int8+rescore", "onnx"),
    ],
)
def test_the_exact_profile_has_the_other_optimizations(profile: str, exact: str) -> None:
    assert exact_profile(Profile.parse(profile)) == Profile.parse(exact)


# --- runs


@pytest.mark.slow
def test_rescoring_everything_gives_the_predictions_of_float32(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = run(make_job(tiny_model, tmp_path, "baseline"))
    rescore_margin(monkeypatch, math.inf)
    result = run(make_job(tiny_model, tmp_path, "mixed+prune+rescore"))
    assert (result.rescored, exact.rescored) == (QUESTIONS, 0)
    assert result.time["rescore_s"] > 0 == exact.time["rescore_s"]
    assert_equal(predictions(result), predictions(exact))


@pytest.mark.slow
def test_rescoring_nothing_gives_the_predictions_of_the_profile(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run(make_job(tiny_model, tmp_path, "mixed"))
    rescore_margin(monkeypatch, 0.0)
    result = run(make_job(tiny_model, tmp_path, "mixed+rescore"))
    assert result.rescored == 0
    assert predictions(result) == predictions(plain)


@pytest.mark.slow
def test_an_interrupted_run_keeps_what_was_rescored(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rescore_margin(monkeypatch, math.inf)
    job = make_job(tiny_model, tmp_path, "mixed+rescore", batch_size=1)
    undisturbed = run(job)
    completed: list[int] = []

    def interrupt(windows: int, total: int) -> None:
        completed.append(windows)
        if sum(completed) > total * 2 // 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(job, progress=interrupt)
    resumed = run(job)
    assert 0 < resumed.resumed_windows < resumed.windows
    assert resumed.read_windows == resumed.windows - resumed.resumed_windows
    assert resumed.rescored == undisturbed.rescored == QUESTIONS
    assert predictions(resumed) == predictions(undisturbed)


@pytest.mark.slow
def test_a_reader_rescores_too(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rescore_margin(monkeypatch, math.inf)
    expected = predictions(run(make_job(tiny_model, tmp_path, "mixed+rescore")))
    examples = islice(inputs.read_examples(bundled_sample()), QUESTIONS)
    with reader.load(tiny_model, profile="mixed+rescore") as loaded:
        actual = [encode_prediction(prediction) for prediction in loaded.predict(examples)]
    assert_equal(actual, expected)


def test_a_rule_without_a_decision_margin_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    job = make_job(tiny_model, tmp_path, "mixed+rescore")
    decision = replace(job.model.decision, rule="kisialiou")
    job = replace(job, model=replace(job.model, decision=decision))
    message = "decision kisialiou has no decision margin: remove rescore from the profile"
    with pytest.raises(Error, match=message):
        run(job)
    with pytest.raises(Error, match=message):
        reader.load(tiny_model, profile="mixed+rescore", decision=decision)
