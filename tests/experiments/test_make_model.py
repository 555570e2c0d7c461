"""Recipes choose the records that they name; a recipe of tiny stages makes a tuned model."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import orjson
import pytest
from safetensors.numpy import load_file

from experiments import make_model
from experiments.recipes import ALL_WIKI, RECIPES, REVIEWS, Pair, Part, Recipe, Stage
from nq.bundle import bundled_sample
from nq.commands.train import parser as train_parser
from nq.config import RankingWeights
from nq.model.folder import load_config, load_settings, weights_digest

pytestmark = pytest.mark.extended

SOURCES = (*ALL_WIKI, *REVIEWS)
ALL_STAGES = [
    pytest.param(recipe, stage, id=f"{name}-{stage.name}")
    for name, recipe in RECIPES.items()
    for stage in recipe.stages
]


@pytest.mark.parametrize(("recipe", "stage"), ALL_STAGES)
def test_nq_train_takes_the_options_of_a_stage(recipe: Recipe, stage: Stage) -> None:
    paths = ["--data", "a.jsonl", "--init", "a", "--output", "b"]
    train_parser().parse_args([*paths, *recipe.options.split(), *stage.options.split()])
    assert {s for part in stage.parts for s in part.sources} <= set(SOURCES)
    names = {other.name for other in recipe.stages}
    starts = {f"{other.name}-start" for other in recipe.stages if other.start}
    assert {*stage.start, *recipe.result} <= names | starts


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
    stages = (
        Stage("nq", (Part(("nq",)),), options),
        Stage("boolq", (Part(("boolq",)),), options, start=("nq",)),
    )
    recipes = {
        "small": Recipe(start, "float32", sizes, stages, result=("nq", "boolq")),
        "ranker": Recipe(start, "int8", pair=Pair("small", 2), prefixes=("is ", "the ")),
    }
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
        assert make_model.main([*command, "--models", "ranker", "small"]) == 0
        made.append(load_file(folder / "model" / "model.safetensors"))
    capsys.readouterr()
    nq, boolq = (load_file(folder / name / "model.safetensors") for name in ("nq", "boolq"))
    for name, values in made[0].items():
        np.testing.assert_array_equal(values, made[1][name])
        expected = (nq[name].astype(np.float64) + boolq[name]) / 2
        np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-7)
    small, ranker = (tmp_path / "out" / name / "model" for name in recipes)
    assert load_settings(small).decision.weights != RankingWeights()
    assert load_config(ranker).is_dual_encoder
    assert load_settings(ranker).second_model == "small"
    assert load_settings(ranker).windows.block_prefix == "the "
    assert load_settings(small).cascades[weights_digest(ranker)].read_blocks == 2
