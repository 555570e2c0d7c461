"""Tests of the scorers that a model folder gives under each profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nq.inference.load import ScorerSpec, load_scorer
from nq.inference.profile import Profile
from nq.model.spec import find_model


def spec_of(folder: Path, profile: str = "baseline", **settings: Any) -> ScorerSpec:
    model = replace(find_model(folder), **settings)
    return ScorerSpec(model, Profile.parse(profile), 8)


def test_a_missing_model_and_windows_beyond_its_positions_are_errors(
    tiny_model: Path, tmp_path: Path
) -> None:
    long = replace(find_model(tiny_model).windows, max_seq_length=33)
    with pytest.raises(ValueError, match=r"33 .* 32 positions"):
        load_scorer(spec_of(tiny_model, windows=long))
    with pytest.raises(FileNotFoundError):
        load_scorer(spec_of(tmp_path))
