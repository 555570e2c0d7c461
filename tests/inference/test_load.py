"""Tests of the scorers that a model folder gives under each profile."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from nq.bundle import bundled_sample
from nq.errors import Error
from nq.formats import inputs
from nq.inference.load import ModelLoader
from nq.inference.predictor import Predictor
from nq.inference.profile import Profile
from nq.inference.prune import PruningScorer
from nq.inference.rescore import RescoringScorer
from nq.inference.scorer import ScorerWrapper, feature_rows, score_examples
from nq.model.checkpoint import load_settings
from nq.preprocess.features import features
from nq.preprocess.tokenizers.load import load_tokenizer


@pytest.fixture(scope="module")
def loader(tiny_model: Path) -> ModelLoader:
    settings = load_settings(tiny_model)
    tokenizer = load_tokenizer(tiny_model, settings.windows.compat)
    return ModelLoader(tiny_model, tokenizer, settings.windows, settings.decision, 8, dict)


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
    loader: ModelLoader, profile: str, wrappers: list[type[ScorerWrapper]]
) -> None:
    scorer: Any = loader.scorer(Profile.parse(profile))
    for wrapper in wrappers:
        assert type(scorer) is wrapper
        scorer = scorer.inner
    assert type(scorer) is Predictor
    assert scorer.profile == Profile.parse(profile)
    assert scorer.shape.batch_size == 8 and scorer.shape.length == loader.windows.max_seq_length


def test_a_scorer_of_a_folder_scores_the_windows_of_pages(loader: ModelLoader) -> None:
    examples = list(islice(inputs.read_examples(bundled_sample()), 3))
    windows = [(e, feature_rows(features(e, loader.tokenizer, loader.windows))) for e in examples]
    scorer = loader.scorer(Profile.parse("prune"))
    scored = list(score_examples(scorer, iter(windows)))
    total = sum(len(rows["window_ids"]) for _, rows in windows)
    assert [len(scores) for _, scores in scored] == [len(rows["window_ids"]) for _, rows in windows]
    assert 0 < scorer.counters.computed_windows <= total


def test_windows_longer_than_the_position_table_are_an_error(loader: ModelLoader) -> None:
    long = replace(loader, windows=replace(loader.windows, max_seq_length=33))
    with pytest.raises(ValueError, match=r"33 .* 32 positions"):
        long.scorer(Profile())


def test_a_profile_that_needs_a_margin_needs_a_rule_with_one(loader: ModelLoader) -> None:
    other = replace(loader, decision=replace(loader.decision, rule="bert-joint"))
    assert type(other.scorer(Profile())) is Predictor
    with pytest.raises(Error, match="remove prune from the profile"):
        other.scorer(Profile.parse("prune"))


def test_a_folder_without_a_model_is_an_error(loader: ModelLoader, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace(loader, folder=tmp_path).scorer(Profile())
