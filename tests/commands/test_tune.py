"""Tests ``nq tune``: the figures that it prints, and the settings that it writes."""

import shutil
from pathlib import Path

import pytest

from nq.bundle import bundled_sample
from nq.model.folder import ModelFolder
from tests.conftest import Commands
from tests.support.folders import tree
from tests.support.nq_records import write_lines


@pytest.mark.slow
def test_the_decision_of_the_model_folder_is_replaced(
    tiny_model: Path,
    tmp_path: Path,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    model = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    before = ModelFolder(model).settings
    arguments = ["--data", bundled_sample(), "--model", model, "--profile", "baseline"]
    first = commands.json("tune", *arguments, "--keep-scores")
    tuned = ModelFolder(model).settings
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
    lines = commands.out("tune", *arguments).splitlines()
    (micro,) = (line for line in lines if line.startswith("micro-F1"))
    assert f"{first['odd_micro_f1']:.3f} / {first['odd_micro_f1_best']:.3f}" in micro
    assert lines[-1].endswith(f"{model}/nq.json")
    assert ModelFolder(model).settings == tuned
    assert not list(tmp_path.glob("runs/*/unfinished"))


@pytest.mark.parametrize(
    ("ids", "gold", "problem"),
    [
        ([1, 3, 5], {"answer": "1874"}, "even id"),
        ([2, 4], {"answer": "1874"}, "odd id"),
        ([1, 2], {}, "no annotations"),
    ],
)
def test_a_half_without_gold_is_named_before_anything_is_computed(
    ids: list[int],
    gold: dict[str, str],
    problem: str,
    tiny_model: Path,
    tmp_path: Path,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    one = {"question": "when was it lit", "context": "It was lit in 1874.", **gold}
    data = write_lines(tmp_path / "own.jsonl", [{"id": i, **one} for i in ids])
    before = tree(tmp_path)
    arguments = ["--data", data, "--model", tiny_model, "--output", "mine"]
    error = commands.error("tune", *arguments, "--profile", "baseline")
    assert problem in error and str(data) in error and tree(tmp_path) == before


@pytest.mark.slow
def test_with_an_output_a_copy_has_the_decision(
    tiny_model: Path, tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a model that is fetched or installed is only read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nq.model.registry.named_model", lambda name: tiny_model)
    before = tree(tiny_model)
    arguments = ["--data", bundled_sample(), "--model", "tiny", "--profile", "baseline"]
    arguments += ["--limit", "12"]
    assert "--output" in commands.error("tune", *arguments)
    figures = commands.json("tune", *arguments, "--output", "mine")
    assert (figures["model"], figures["odd_examples"]) == ("mine", 8)
    assert ModelFolder(Path("mine")).settings.decision.long_threshold == figures["long_threshold"]
    assert tree(tiny_model) == before
    assert tree(Path("mine")).keys() == before.keys()
    assert "mine" in commands.error("tune", *arguments, "--output", "mine")
