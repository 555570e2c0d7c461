"""Tests of the scorers that a model folder gives under each profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nq.config import DecisionConfig
from nq.inference.load import ScorerSpec, load_scorer
from nq.inference.predictor import Predictor
from nq.inference.profile import Profile
from nq.inference.prune import PruningScorer
from nq.inference.rescore import RescoringScorer
from nq.model.spec import find_model


def spec_of(folder: Path, profile: str = "baseline", **settings: Any) -> ScorerSpec:
    model = replace(find_model(folder), **settings)
    return ScorerSpec(model, Profile.parse(profile), 8)


def test_a_profile_wraps_the_predictor(tiny_model: Path) -> None:
    wrapped: dict[str, list[type[Any]]] = {
        "mixed+grappler": [],
        "prune": [PruningScorer],
        "mixed+prune+rescore": [RescoringScorer, PruningScorer],
    }
    for profile, wrappers in wrapped.items():
        spec = spec_of(tiny_model, profile)
        scorer: Any = load_scorer(spec)
        for wrapper in wrappers:
            assert type(scorer) is wrapper
            scorer = scorer.inner
        assert type(scorer) is Predictor and scorer.profile == spec.profile
        assert scorer.shape.batch_size == 8
        assert scorer.shape.length == spec.model.windows.max_seq_length
    unranked = spec_of(tiny_model, decision=DecisionConfig(rule="bert-joint"))
    assert type(load_scorer(unranked)) is Predictor


def test_a_missing_model_and_windows_beyond_its_positions_are_errors(
    tiny_model: Path, tmp_path: Path
) -> None:
    long = replace(find_model(tiny_model).windows, max_seq_length=33)
    with pytest.raises(ValueError, match=r"33 .* 32 positions"):
        load_scorer(spec_of(tiny_model, windows=long))
    with pytest.raises(FileNotFoundError):
        load_scorer(spec_of(tmp_path))
