"""Models by their recipes: the encoder of the start, the data, and a recipe of tiny stages."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from safetensors.numpy import load_file

from experiments import make_model, make_sample, pretrained
from experiments.distractors import (
    gold_blocks,
    inserted,
    paragraphs,
    short_answers,
    without_gold,
)
from experiments.recipes import RECIPES, Pair, Part, Recipe, Stage
from experiments.short_pages import ID_SHIFTS, MOST, short_pages
from experiments.training_data import Record
from nq.bundle import bundled_sample
from nq.commands.train import parser as train_parser
from nq.config import RankingWeights
from nq.evaluation.tuning import FOLDS
from nq.model.folder import ModelFolder, PairFolder, open_folder
from tests.support import nq_records

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
        nq_records.write_lines(tmp_path / "data" / part / "a.jsonl.gz", sample)
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


def test_matrices_are_named_by_their_products(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    name = "encoder.layer.0.output.dense"
    values: dict[str, Any] = {
        "embeddings.word_embeddings.weight": draw.normal(size=(7, 4)).astype(np.float32)
    }
    values["onnx::MatMul_9"] = draw.normal(size=(4, 3)).astype(np.float32)
    values[f"{name}.bias"] = draw.normal(size=3).astype(np.float32)
    values["embeddings.position_ids"] = np.arange(7)
    nodes = [
        helper.make_node("Gather", ["embeddings.word_embeddings.weight", "ids"], ["x"]),
        helper.make_node(
            "MatMul", ["x", "onnx::MatMul_9"], ["y"], "/encoder/layer.0/output/dense/MatMul"
        ),
        helper.make_node("MatMul", ["y", "y"], ["scores"], "/encoder/layer.0/attention/MatMul"),
    ]
    stored = [numpy_helper.from_array(value, key) for key, value in values.items()]
    graph = helper.make_graph(nodes, "encoder", [], [], stored)
    onnx.save(helper.make_model(graph), tmp_path / "encoder.onnx")
    weights = dict(pretrained.read_onnx(tmp_path / "encoder.onnx"))
    del values["embeddings.position_ids"]
    values[f"{name}.weight"] = values.pop("onnx::MatMul_9").T
    assert weights.keys() == values.keys()
    for key, value in values.items():
        np.testing.assert_array_equal(weights[key], value)


def texts(record: Record, spans: Iterable[Record]) -> list[str]:
    """Returns the texts of spans, empty ones for none."""
    tokens = record["document_text"].split(" ")
    return [" ".join(tokens[max(0, s["start_token"]) : max(0, s["end_token"])]) for s in spans]


def golden(record: Record) -> list[str]:
    """Returns the texts of the candidates that the annotations name."""
    candidates = record["long_answer_candidates"]
    return texts(record, [candidates[i] for i in sorted(gold_blocks(record))])


BLOCKS = st.lists(st.sampled_from(["<P> moon </P>", "<P> deep lake </P>", "<P> </P>"]), max_size=4)


@given(BLOCKS, BLOCKS)
def test_annotations_keep_their_words(before: list[str], after: list[str]) -> None:
    record = nq_records.simplified()
    longer = inserted(record, before, after)
    assert paragraphs(longer) == [*before, *paragraphs(record), *after]
    assert golden(longer) == golden(record)
    for old, new in zip(record["annotations"], longer["annotations"], strict=True):
        assert old["yes_no_answer"] == new["yes_no_answer"]
        for spans in ("short_answers", "long_answer"):
            own, moved = ([a[spans]] if spans[0] == "l" else a[spans] for a in (old, new))
            assert texts(longer, moved) == texts(record, own)


def test_short_pages_have_blocks_of_the_page_with_and_without_the_answer() -> None:
    lines = bundled_sample().read_bytes().splitlines()
    records = {n: {**orjson.loads(line), "example_id": n} for n, line in enumerate(lines)}
    blocks = {n: {*paragraphs(one)} for n, one in records.items()}
    answered = [n for n, one in records.items() if set() < {*golden(one)} < blocks[n]]
    pages = {page["example_id"]: page for page in short_pages(records[n] for n in answered)}
    assert pages.keys() == {n + shift for n in answered for shift in ID_SHIFTS.values()}
    assert all(shift % (2 * FOLDS) == 0 for shift in ID_SHIFTS.values())
    for n in answered:
        record, own = records[n], golden(records[n])
        with_gold, without = (pages[n + ID_SHIFTS[has_gold]] for has_gold in (True, False))
        for page in (with_gold, without):
            assert 1 <= len(paragraphs(page)) <= max(MOST, len(own))
            assert {*paragraphs(page)} <= blocks[n]
        assert golden(with_gold) == own
        assert short_answers(with_gold) == short_answers(record)
        assert not gold_blocks(without) and not short_answers(without)
        assert {*paragraphs(without_gold(record))} == blocks[n] - {*own}


def test_the_committed_sample_is_up_to_date() -> None:
    assert make_sample.main(["--check"]) == 0
