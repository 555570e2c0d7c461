"""Pruning: a pruned model is the model without what was pruned; folders are pruned again."""

import dataclasses
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.compression import pruning
from experiments.compression.importance import assign, weights_of
from experiments.compression.pruning import prune
from experiments.compression.structure import (
    Importance,
    Kept,
    prune_weights,
    pruned_shape,
    select,
)
from nq.bundle import bundled_sample
from nq.config import DecisionConfig, WindowConfig
from nq.model import checkpoint, joint
from nq.model.config import ModelConfig
from nq.model.folder import ModelFolder, ModelSettings
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import FloatArray
from tests.experiments.conftest import RunCommand
from tests.support import tiny_models

pytestmark = pytest.mark.extended

WIDE = dataclasses.replace(
    tiny_models.SHAPE, num_attention_heads=4, intermediate_size=128, num_hidden_layers=3
)
RELATIVE = dataclasses.replace(WIDE, relative_attention_num_buckets=8)
COUNTS = {"heads": 3, "ffn": 64, "layers": 2}
ROWS = tiny_models.rows((16, 11, 6, 4), 16)

each_shape = pytest.mark.parametrize("shape", [WIDE, RELATIVE], ids=["plain", "relative"])


@cache
def built(shape: ModelConfig) -> Any:
    """A model to give weights again and again."""
    return tiny_models.model(shape=shape)


@cache
def stored(shape: ModelConfig) -> dict[str, FloatArray]:
    return weights_of(tiny_models.model(shape=shape))


def logits(shape: ModelConfig, weights: dict[str, FloatArray]) -> dict[str, FloatArray]:
    model = built(shape)
    assert weights.keys() == {weight.path for weight in model.weights}
    assign(model, weights)
    return {name: np.asarray(value) for name, value in model(ROWS).items()}


def random_kept(shape: ModelConfig, draw: np.random.Generator) -> Kept:
    """Returns any parts that a pruned model can have."""
    after = pruned_shape(shape, COUNTS)
    importance = Importance(
        draw.random((shape.num_hidden_layers, shape.num_attention_heads)),
        draw.random((shape.num_hidden_layers, shape.intermediate_size)),
        draw.random(shape.num_hidden_layers),
    )
    return select(importance, shape, after)


def without(weights: dict[str, FloatArray], shape: ModelConfig, kept: Kept) -> None:
    """Sets what is not kept of the kept layers to 0, where it enters the rest of the model."""
    size = shape.head_width
    for layer, heads, units in zip(kept.layers, kept.heads, kept.units, strict=True):
        for head in {*range(shape.num_attention_heads)} - {*heads.tolist()}:
            weights[f"layer_{layer}_attention_output/kernel"][head * size : (head + 1) * size] = 0
        weights[f"layer_{layer}_output/kernel"][np.delete(np.arange(128), units)] = 0


def make_identity(weights: dict[str, FloatArray], layer: int) -> None:
    """Makes a layer return its input: it adds nothing to it, and it is normalized already."""
    before = f"layer_{layer - 1}_output_norm" if layer else "embeddings_norm"
    for part in ("attention_output", "output"):
        weights[f"layer_{layer}_{part}/kernel"][:] = 0
        weights[f"layer_{layer}_{part}/bias"][:] = 0
    for norm in (before, f"layer_{layer}_attention_norm", f"layer_{layer}_output_norm"):
        weights[f"{norm}/gamma"][:] = 1
        weights[f"{norm}/beta"][:] = 0


@each_shape
@given(seed=st.integers(0, 2**32 - 1))
def test_a_pruned_model_is_the_model_without_what_was_pruned(shape: ModelConfig, seed: int) -> None:
    """Any heads and units are removed, and a layer that is the identity."""
    kept = random_kept(shape, np.random.default_rng(seed))
    weights = {path: value.copy() for path, value in stored(shape).items()}
    (gone,) = {0, 1, 2} - {*kept.layers.tolist()}
    make_identity(weights, gone)
    pruned = logits(pruned_shape(shape, COUNTS), prune_weights(weights, shape, kept))
    whole = logits(shape, weights)
    without(weights, shape, kept)
    masked = logits(shape, weights)
    for name in masked:
        np.testing.assert_allclose(pruned[name], masked[name], atol=1e-5)
    assert max(np.abs(whole[name] - masked[name]).max() for name in whole) > 0.01


SAMPLE = bundled_sample()
SHAPE = dataclasses.replace(WIDE, hidden_act="gelu_new")
SETTINGS = ModelSettings(
    WindowConfig(max_seq_length=32, doc_stride=8, max_query_length=8),
    DecisionConfig(long_threshold=0.25),
)


@pytest.fixture(scope="module")
def tokenizer(tiny_vocab: Path) -> Tokenizer:
    return load_tokenizer(tiny_vocab)


@pytest.fixture(scope="module")
def source(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with enough of everything."""
    folder = tmp_path_factory.mktemp("models") / "source"
    model = tiny_models.model(shape=SHAPE)
    checkpoint.save(folder, model, SHAPE, tokenizer, SETTINGS, "# A tiny model\n")
    return folder


@pytest.fixture(scope="module")
def pruned(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pruned model; read it, do not write into it."""
    folder = tmp_path_factory.mktemp("pruned") / "pruned"
    prune(source, folder, COUNTS, [str(SAMPLE)])
    return folder


def settings_of(folder: Path) -> Any:
    return json.loads((folder / "nq.json").read_bytes())


def test_a_pruned_folder_says_what_was_removed(source: Path, pruned: Path) -> None:
    before, after = (json.loads((f / "config.json").read_bytes()) for f in (source, pruned))
    counts = {"num_attention_heads": 3, "intermediate_size": 64, "num_hidden_layers": 2}
    assert after == before | counts | {"head_size": 2}
    (record,) = settings_of(pruned)["removed_parts"]
    assert (record["source"], record["data"]) == ("source", [SAMPLE.name])
    assert record["num_attention_heads"] == [4, 3] and len(record["removed_layers"]) == 1
    assert [len(heads) for heads in record["removed_heads"]] == [1, 1]
    loaded = ModelFolder(pruned).settings
    assert (loaded.windows, loaded.decision) == (SETTINGS.windows, SETTINGS.decision)
    card = (pruned / "README.md").read_text(encoding="utf-8")
    assert "2 of 3 layers with 3 of 4 heads and 64 of 128 feed-forward units" in card


def test_a_pruned_folder_is_pruned_again(
    pruned: Path, tmp_path: Path, run_command: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    again, data = tmp_path / "again", ["--data", str(SAMPLE)]
    result = run_command(pruning.main, pruned, again, "--prune", "heads=2,layers=1", *data)
    assert result["pruning"]["num_attention_heads"] == [3, 2]
    config = ModelFolder(again).config
    assert (config.num_attention_heads, config.head_width, config.num_hidden_layers) == (2, 2, 1)
    first, second = settings_of(again)["removed_parts"]
    assert (first["source"], second) == ("source", result["pruning"])
    joint.load_model(ModelFolder(again))
    assert pruning.main([str(again), str(tmp_path / "more"), "--prune", "heads=3", *data]) == 1
    assert re.search(r"heads is 3\b.*\b2\b", capsys.readouterr().err)
