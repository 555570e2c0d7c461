"""Tests ``nq tune``: the figures that it prints, and the settings that it writes."""

import shutil
from pathlib import Path

import pytest

import nq
from nq.bundle import bundled_model, bundled_sample
from nq.config import DecisionConfig
from nq.errors import Error
from nq.model.folder import ModelFolder, save_settings
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
    arguments = ["--data", bundled_sample(), "--model", model, "--profile", "openvino"]
    first = commands.json("tune", *arguments, "--keep-scores")
    tuned = ModelFolder(model).settings
    assert tuned.windows == before.windows
    assert tuned.decision.weights != before.decision.weights
    thresholds = tuned.decision.long_threshold, tuned.decision.short_threshold
    assert thresholds == (first["long_threshold"], first["short_threshold"])
    assert first["model"] == str(model)
    assert 0 < first["odd_examples"] < 40
    assert 0 <= first["odd_micro_f1"] <= first["odd_micro_f1_best"]
    for name in ("long_f1", "short_f1"):
        assert 0 <= first[f"odd_{name}"] <= first[f"odd_{name}_best"] <= 1
    # with the kept scores, which are then removed; the decision is that of the first time
    save_settings(model, before)
    lines = commands.out("tune", *arguments).splitlines()
    assert "little can be learnt" in commands.err
    (row,) = (number for number, line in enumerate(lines) if line.startswith("micro-F1"))
    for shown, name in ((lines[row], "odd"), (lines[row + 1], "odd_before")):
        assert f"{first[f'{name}_micro_f1']:.3f} / {first[f'{name}_micro_f1_best']:.3f}" in shown
    assert lines[-1].endswith(f"{model}/nq.json")
    assert ModelFolder(model).settings == tuned
    assert not list(tmp_path.glob("runs/*/unfinished"))


@pytest.mark.slow
def test_a_fitted_decision_is_where_the_next_fit_starts(
    tiny_model: Path, tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scores are those of the fit before, since they do not depend on the decision.

    The folder of a model that is fetched or bundled is only read; a new one is a copy of it.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nq.model.registry.bundled_model", lambda name: tiny_model)
    model = tree(tiny_model)
    arguments = ["--data", bundled_sample(), "--profile", "openvino", "--keep-scores"]
    arguments += ["--limit", "20"]
    assert "--output" in commands.error("tune", *arguments, "--model", "small")
    to_copy = [*arguments, "--model", "small", "--output", "first"]
    free = commands.json("tune", *to_copy)
    assert "first" in commands.error("tune", *to_copy)
    assert tree(tiny_model) == model and tree(Path("first")).keys() == model.keys()
    first = ModelFolder(Path("first")).settings.decision
    assert (free["model"], free["odd_examples"]) == ("first", 14)
    assert free["long_threshold"] == first.long_threshold
    again = commands.json("tune", *arguments, "--model", "./first", "--output", "again")
    assert len(list(Path("runs").glob("openvino-*"))) == 1
    names = ("long_threshold", "short_threshold", "odd_micro_f1", "odd_long_f1", "odd_short_f1")
    before = [again[name.replace("odd_", "odd_before_", 1)] for name in names[2:]]
    assert before == [free[name] for name in names[2:]]
    assert [again[f"before_{name}"] for name in names[:2]] == [free[name] for name in names[:2]]
    second = ModelFolder(Path("again")).settings.decision

    def distance(one: DecisionConfig, other: DecisionConfig) -> float:
        pairs = zip(one.weights.block_vector(), other.weights.block_vector(), strict=True)
        return sum(abs(x - y) for x, y in pairs)

    assert 0 < distance(second, first) < distance(first, DecisionConfig())


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
    error = commands.error("tune", *arguments, "--profile", "openvino")
    assert problem in error and str(data) in error and tree(tmp_path) == before


def test_an_opened_model_that_is_installed_is_not_written_to() -> None:
    before = tree(bundled_model("small"))
    for model in ("small", bundled_model("small"), nq.Model.open("small")):
        with pytest.raises(Error, match="--output"):
            nq.tune(bundled_sample(), model, "openvino")
    assert tree(bundled_model("small")) == before
