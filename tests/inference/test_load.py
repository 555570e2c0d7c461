"""Tests of the scorers that a model folder gives under each profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nq.config import DecisionConfig
from nq.errors import Error
from nq.inference.load import ScorerSpec, load_scorer
from nq.inference.predictor import Predictor
from nq.inference.profile import Profile
from nq.inference.prune import PruningScorer
from nq.inference.rescore import RescoringScorer
from nq.inference.scorer import ScorerWrapper
from nq.model.spec import find_model


def spec_of(folder: Path, profile: str = "baseline", **settings: Any) -> ScorerSpec:
    model = replace(find_model(folder), **settings)
    return ScorerSpec(model, Profile.parse(profile), 8)


@pytest.mark.parametrize(
    ("profile", "wrappers"),
    [
        ("baseline", []),
        ("mixed+grappler", []),
        ("prune", [PruningScorer]),
        ("mixed+rescore", [RescoringScorer]),
        ("mixed+prune+rescore", [RescoringScorer, PruningScorer]),
    ],
)
def test_a_profile_wraps_the_predictor(
    tiny_model: Path, profile: str, wrappers: list[type[ScorerWrapper]]
) -> None:
    spec = spec_of(tiny_model, profile)
    scorer: Any = load_scorer(spec)
    for wrapper in wrappers:
        assert type(scorer) is wrapper
        scorer = scorer.inner
    assert type(scorer) is Predictor
    assert scorer.profile == Profile.parse(profile)
    assert scorer.shape.batch_size == 8
    assert scorer.shape.length == spec.model.windows.max_seq_length


def test_windows_longer_than_the_position_table_are_an_error(tiny_model: Path) -> None:
    long = replace(find_model(tiny_model).windows, max_seq_length=33)
    with pytest.raises(ValueError, match=r"33 .* 32 positions"):
        load_scorer(spec_of(tiny_model, windows=long))


def test_a_profile_that_needs_a_margin_needs_a_rule_with_one(tiny_model: Path) -> None:
    decision = DecisionConfig(rule="bert-joint")
    assert type(load_scorer(spec_of(tiny_model, decision=decision))) is Predictor
    with pytest.raises(Error, match="remove prune from the profile"):
        load_scorer(spec_of(tiny_model, "prune", decision=decision))


def test_a_folder_without_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_scorer(spec_of(tmp_path))
