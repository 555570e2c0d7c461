"""Models by their recipes: the encoder of the start, the data, and a recipe of tiny stages."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

from experiments import make_model, make_sample, pretrained
from experiments.distractors import (
    inserted,
    paragraphs,
)
from experiments.recipes import ALL_WIKI, RECIPES, REVIEWS, Pair, Part, Recipe, Stage
from nq.bundle import bundled_sample
from nq.commands.train import parser as train_parser
from nq.config import RankingWeights
from nq.model.folder import ModelFolder, PairFolder, open_folder
from tests.support import nq_records

SOURCES = (*ALL_WIKI, *REVIEWS)
ALL_STAGES = [
    pytest.param(recipe, stage, id=f"{name}-{stage.name}")
    for name, recipe in RECIPES.items()
    if isinstance(recipe, Recipe)
    for stage in recipe.stages
]


@pytest.mark.extended
@pytest.mark.parametrize(("recipe", "stage"), ALL_STAGES)
def test_nq_train_takes_the_options_of_a_stage(recipe: Recipe, stage: Stage) -> None:
    paths = ["--data", "a.jsonl", "--init", "a", "--output", "b"]
    train_parser().parse_args([*paths, *recipe.options.split(), *stage.options.split()])
    assert {s for part in stage.parts for s in part.sources} <= set(SOURCES)
    names = {other.name for other in recipe.stages}
    starts = {f"{other.name}-start" for other in recipe.stages if other.start}
    assert {*stage.start, *recipe.result} <= names | starts


@pytest.mark.extended
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
        "ranker": Recipe(start, "int8", prefixes=("is ", "the ")),
        "ranker+small": Pair("ranker", "small", 2),
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
        assert make_model.main([*command, "--models", *reversed(recipes)]) == 0
        made.append(load_file(folder / "model" / "model.safetensors"))
    capsys.readouterr()
    nq, boolq = (load_file(folder / name / "model.safetensors") for name in ("nq", "boolq"))
    for name, values in made[0].items():
        np.testing.assert_array_equal(values, made[1][name])
        expected = (nq[name].astype(np.float64) + boolq[name]) / 2
        np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-7)
    small, ranker, pair = (open_folder(tmp_path / "out" / name / "model") for name in recipes)
    assert isinstance(small, ModelFolder)
    assert isinstance(ranker, ModelFolder)
    assert small.settings.decision.weights != RankingWeights()
    assert ranker.config.is_dual_encoder
    assert ranker.settings.windows.block_prefix == "the "
    assert isinstance(pair, PairFolder)
    assert (pair.ranker.digest, pair.reader.digest) == (ranker.digest, small.digest)
    assert pair.decision.read_blocks == 2
    assert pair.decision.first == ranker.settings.decision


MATRIX = "/encoder/layer.0/output/dense/MatMul"


def test_matrices_are_named_by_their_products(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    table, matrix, bias = (
        draw.normal(size=shape).astype(np.float32) for shape in ((7, 4), (4, 3), (3,))
    )
    name = "encoder.layer.0.output.dense"
    values: dict[str, Any] = {"embeddings.word_embeddings.weight": table, "onnx::MatMul_9": matrix}
    values |= {f"{name}.bias": bias, "embeddings.position_ids": np.arange(7)[None]}
    nodes = [
        helper.make_node("Gather", ["embeddings.word_embeddings.weight", "ids"], ["x"]),
        helper.make_node("MatMul", ["x", "onnx::MatMul_9"], ["y"], MATRIX),
        helper.make_node("MatMul", ["y", "z"], ["scores"], "/encoder/layer.0/attention/MatMul"),
    ]
    given = [helper.make_tensor_value_info("ids", TensorProto.INT64, [None])]
    given.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [3, 3]))
    result = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, 3])]
    stored = [numpy_helper.from_array(value, key) for key, value in values.items()]
    graph = helper.make_graph(nodes, "encoder", given, result, stored)
    onnx.save(helper.make_model(graph), tmp_path / "encoder.onnx")
    weights = dict(pretrained.read_onnx(tmp_path / "encoder.onnx"))
    expected = {"embeddings.word_embeddings.weight": table, f"{name}.bias": bias}
    expected[f"{name}.weight"] = matrix.T
    assert weights.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(weights[key], value)


NAMES = ["moon", "lake", "deep", "who", "walked", "on", "first"]
WORDS = st.lists(st.sampled_from(NAMES), max_size=9)


def text_of(record: dict[str, Any], span: dict[str, Any]) -> list[str]:
    words: list[str] = record["document_text"].split(" ")[span["start_token"] : span["end_token"]]
    return words


@given(
    st.lists(WORDS.map(lambda w: " ".join(["<P>", *w, "</P>"])), max_size=4),
    st.lists(WORDS.map(lambda w: " ".join(["<P>", *w, "</P>"])), max_size=4),
)
def test_annotations_keep_their_words(before: list[str], after: list[str]) -> None:
    record = nq_records.simplified()
    longer = inserted(record, before, after)
    assert paragraphs(longer) == [*before, *paragraphs(record), *after]
    for old, new in zip(record["annotations"], longer["annotations"], strict=True):
        assert old["yes_no_answer"] == new["yes_no_answer"]
        long, moved = old["long_answer"], new["long_answer"]
        if long["candidate_index"] < 0:
            assert moved == long
        else:
            assert text_of(longer, moved) == text_of(record, long)
            candidate = longer["long_answer_candidates"][moved["candidate_index"]]
            assert candidate["start_token"] == moved["start_token"]
        for a, b in zip(old["short_answers"], new["short_answers"], strict=True):
            assert text_of(longer, b) == text_of(record, a)


def test_the_committed_sample_is_up_to_date() -> None:
    assert make_sample.main(["--check"]) == 0
