"""Tests ``nq tune``: the figures that it prints, and the settings that it writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nq.bundle import bundled_sample
from nq.model.folder import load_settings
from tests.conftest import Commands


@pytest.mark.slow
def test_the_decision_of_the_model_folder_is_replaced(
    tiny_model: Path,
    tmp_path: Path,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    model = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    before = load_settings(model)
    arguments = ["--data", bundled_sample(), "--model", model, "--profile", "baseline"]
    first = commands.json("tune", *arguments, "--keep-scores")
    tuned = load_settings(model)
    assert tuned.windows == before.windows
    assert tuned.decision.weights != before.decision.weights
    thresholds = tuned.decision.long_threshold, tuned.decision.short_threshold
    assert thresholds == (first["long_threshold"], first["short_threshold"])
    assert first["model"] == str(model)
    assert 0 < first["odd_examples"] < 40
    assert 0 < first["odd_micro_f1"] < 1
    for name in ("long_f1", "short_f1"):
        assert 0 <= first[f"odd_{name}"] <= first[f"odd_{name}_best"] <= 1
    # with the kept scores, which are then removed
    assert "odd_micro_f1" in commands.out("tune", *arguments)
    assert load_settings(model) == tuned
    assert not list(tmp_path.glob("runs/*/unfinished"))
