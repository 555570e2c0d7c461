"""Recipes choose the records that they name; a recipe of tiny stages makes a tuned model."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from safetensors.numpy import load_file

from experiments import make_model
from experiments.recipes import RECIPES, REVIEWS, WIKI, Part, Recipe, Stage
from nq.bundle import bundled_sample
from nq.commands.train import parser as train_parser
from nq.config import StorageConfig
from nq.model.folder import load_config
from tests import nq_records

SOURCES = (*WIKI, *REVIEWS)
ALL_STAGES = [
    pytest.param(recipe, stage, id=f"{name}-{stage.name}")
    for name, recipe in RECIPES.items()
    for stage in recipe.stages
]


def records(count: int) -> list[dict[str, Any]]:
    """Returns records of all sources in turn."""
    return [
        {**nq_records.simplified(), "example_id": i, "source": SOURCES[i % len(SOURCES)]}
        for i in range(count)
    ]


@pytest.mark.parametrize(("recipe", "stage"), ALL_STAGES)
def test_nq_train_takes_the_options_of_a_stage(recipe: Recipe, stage: Stage) -> None:
    paths = ["--data", "a.jsonl", "--init", "a", "--output", "b"]
    train_parser().parse_args([*paths, *recipe.options.split(), *stage.options.split()])
    assert {s for part in stage.parts for s in part.sources} <= set(SOURCES)
    earlier = [other.name for other in recipe.stages[: recipe.stages.index(stage)]]
    assert set(stage.start) <= set(earlier)


def test_teachers_are_made_before_their_students() -> None:
    names = list(RECIPES)
    for student, recipe in RECIPES.items():
        assert all(names.index(name) < names.index(student) for name in recipe.teachers)


def test_a_stage_has_the_records_of_its_parts() -> None:
    stage = Stage("x", (Part(("nq", "boolq"), distractors=1), Part(REVIEWS, sample=5)), "")
    chosen = list(stage.records(records(70)))
    assert Counter(r["source"] in REVIEWS for r in chosen) == {False: 20, True: 5}
    assert len({r["example_id"] for r in chosen}) == 25
    assert chosen == list(stage.records(records(70)))
    assert len(list(Part(REVIEWS, sample=99).records(records(70)))) == 20


@pytest.mark.slow
def test_a_recipe_makes_a_tuned_model_and_resumes(
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def start(folder: Path) -> Path:
        return Path(shutil.copytree(tiny_model, folder, dirs_exist_ok=True))

    sizes = "--max-seq-length 32 --max-query-length 8 --doc-stride 16 --no-track --batch-size 8"
    options = "--epochs 1 --learning-rate 1e-2 --dropout 0"
    first, second = (Stage(name, (Part((name,)),), options) for name in ("nq", "boolq"))
    taught = Stage("taught", (Part(("nq",)),), options, start=("nq", "boolq"), teacher="base")
    base = Recipe(start, sizes, (first,), "float32")
    small = Recipe(start, sizes, (first, second, taught), "float32")
    ranker = Recipe(start, "", (), "int8", dual_encoder=True)
    recipes = {"ranker": ranker, "base": base, "small": small}
    monkeypatch.setattr(make_model, "RECIPES", recipes)
    for part in ("train", "dev"):
        (tmp_path / "data" / part).mkdir(parents=True)
        sample = [orjson.loads(line) for line in bundled_sample().read_bytes().splitlines()]
        for i, record in enumerate(sample):
            record["source"] = ("nq", "boolq")[i % 2]
        with gzip.open(tmp_path / "data" / part / "a.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(record) + "\n" for record in sample)
    command = ["--data", str(tmp_path / "data"), "--output", str(tmp_path / "out")]
    folder, made = tmp_path / "out" / "small", []
    for _ in range(2):
        assert make_model.main([*command, "--models", "small", "base", "ranker"]) == 0
        made.append(load_file(folder / "model" / "model.safetensors"))
    capsys.readouterr()
    assert load_config(tmp_path / "out" / "ranker" / "model").is_dual_encoder
    assert json.loads((folder / "model" / "nq.json").read_text())["decision"]["weights"]
    names = ("nq", "boolq", "nq-boolq", "taught")
    nq, boolq, mean, last = (load_file(folder / name / "model.safetensors") for name in names)
    for name, values in made[0].items():
        np.testing.assert_array_equal(values, made[1][name])
        np.testing.assert_array_equal(values, last[name])
        expected = (nq[name].astype(np.float64) + boolq[name]) / 2
        np.testing.assert_allclose(mean[name], expected, rtol=1e-6, atol=1e-7)
    assert any(not np.array_equal(values, mean[name]) for name, values in last.items())


def test_the_mean_of_one_model_is_that_model(tiny_model: Path, tmp_path: Path) -> None:
    make_model.mean([tiny_model], tmp_path / "mean", StorageConfig("float32"))
    expected = load_file(tiny_model / "model.safetensors")
    for name, values in load_file(tmp_path / "mean" / "model.safetensors").items():
        np.testing.assert_array_equal(values, expected[name])


def test_a_student_without_its_teacher_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("train", "dev"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl.gz").write_bytes(b"")
    command = ["--data", str(tmp_path), "--output", str(tmp_path / "out"), "--models", "small"]
    assert make_model.main(command) == 1
    err = capsys.readouterr().err
    assert "small is taught by base: make it too, by --models base small" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("missing", ["train", "dev"])
def test_data_without_files_are_one_line(
    missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in {"train", "dev"} - {missing}:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl.gz").write_bytes(b"")
    assert make_model.main(["--data", str(tmp_path), "--output", str(tmp_path / "out")]) == 1
    err = capsys.readouterr().err
    assert f"has no {missing}/*.jsonl.gz" in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()
