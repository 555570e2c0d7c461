"""Pruning: which parts are kept, that the others leave, and that what had no effect leaves none."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nq.config import ModelConfig, PruningConfig
from nq.model import joint
from nq.model.pruning import Importance, Kept, PruningRecord, prune_weights, pruned_shape, select
from nq.model.shapes import weight_shapes
from nq.records import FloatArray, IntArray
from tests import tiny_models

WIDE = dataclasses.replace(
    tiny_models.SHAPE, num_attention_heads=4, intermediate_size=128, num_hidden_layers=3
)
RELATIVE = dataclasses.replace(WIDE, relative_attention_num_buckets=8)
COUNTS = PruningConfig(heads=3, ffn=64, layers=2)
ROWS = tiny_models.rows((16, 11, 6, 4), 16)

each_shape = pytest.mark.parametrize("shape", [WIDE, RELATIVE], ids=["plain", "relative"])


@cache
def built(shape: ModelConfig) -> Any:
    """A model to give weights again and again."""
    return joint.build(shape)


def weights_of(shape: ModelConfig) -> dict[str, FloatArray]:
    return {weight.path: weight.numpy() for weight in tiny_models.model(shape=shape).weights}


def logits(shape: ModelConfig, weights: dict[str, FloatArray]) -> dict[str, FloatArray]:
    model = built(shape)
    assert weights.keys() == {weight.path for weight in model.weights}
    for weight in model.weights:
        weight.assign(weights[weight.path])
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
        for head in others(shape.num_attention_heads, heads):
            weights[f"layer_{layer}_attention_output/kernel"][head * size : (head + 1) * size] = 0
        for unit in others(shape.intermediate_size, units):
            weights[f"layer_{layer}_output/kernel"][unit] = 0


def make_identity(weights: dict[str, FloatArray], layer: int) -> None:
    """Makes a layer return its input: it adds nothing to it, and it is normalized already."""
    before = f"layer_{layer - 1}_output_norm" if layer else "embeddings_norm"
    for part in ("attention_output", "output"):
        weights[f"layer_{layer}_{part}/kernel"][:] = 0
        weights[f"layer_{layer}_{part}/bias"][:] = 0
    for norm in (before, f"layer_{layer}_attention_norm", f"layer_{layer}_output_norm"):
        weights[f"{norm}/gamma"][:], weights[f"{norm}/beta"][:] = 1, 0


def others(number: int, kept: IntArray) -> set[int]:
    """Returns the numbers below ``number`` that are not kept."""
    return set(range(number)) - set(kept.tolist())


# --- weights


@each_shape
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_pruned_model_is_the_model_without_what_was_pruned(shape: ModelConfig, seed: int) -> None:
    """Any heads and units are removed, and a layer that is the identity."""
    kept = random_kept(shape, np.random.default_rng(seed))
    weights = weights_of(shape)
    make_identity(weights, *others(shape.num_hidden_layers, kept.layers))
    pruned = logits(pruned_shape(shape, COUNTS), prune_weights(weights, shape, kept))
    whole = logits(shape, weights)
    without(weights, shape, kept)
    masked = logits(shape, weights)
    for name in masked:
        np.testing.assert_allclose(pruned[name], masked[name], atol=1e-5)
    assert max(np.abs(whole[name] - masked[name]).max() for name in whole) > 0.01


@each_shape
def test_pruned_weights_have_the_shapes_of_the_pruned_model(shape: ModelConfig) -> None:
    kept = random_kept(shape, np.random.default_rng(1))
    pruned = prune_weights(weights_of(shape), shape, kept)
    expected = weight_shapes(pruned_shape(shape, COUNTS))
    assert {path: value.shape for path, value in pruned.items()} == expected


def test_pruning_in_two_steps_is_pruning_once() -> None:
    draw, weights = np.random.default_rng(3), weights_of(WIDE)
    importance = Importance(draw.random((3, 4)), draw.random((3, 128)), draw.random(3))
    first = pruned_shape(WIDE, PruningConfig(heads=3, layers=2))
    second = pruned_shape(first, PruningConfig(heads=1, ffn=64))
    kept = select(importance, WIDE, first)
    left = Importance(
        np.take_along_axis(importance.heads[kept.layers], kept.heads, axis=1),
        importance.units[kept.layers],
        importance.layers[kept.layers],
    )
    again = prune_weights(prune_weights(weights, WIDE, kept), first, select(left, first, second))
    at_once = pruned_shape(WIDE, PruningConfig(heads=1, ffn=64, layers=2))
    assert at_once == second
    expected = prune_weights(weights, WIDE, select(importance, WIDE, at_once))
    for path, value in expected.items():
        np.testing.assert_array_equal(again[path], value)


# --- selection


@given(seed=st.integers(0, 2**32 - 1))
def test_nothing_that_leaves_a_layer_is_more_important_than_what_stays(seed: int) -> None:
    draw = np.random.default_rng(seed)
    heads, units = draw.integers(0, 4, (3, 4)) / 1, draw.integers(0, 9, (3, 128)) / 1
    importance = Importance(heads, units, draw.integers(0, 3, 3) / 1)
    kept = select(importance, WIDE, pruned_shape(WIDE, COUNTS))
    groups = [(importance.layers, kept.layers)]
    groups += zip(importance.heads[kept.layers], kept.heads, strict=True)
    groups += zip(importance.units[kept.layers], kept.units, strict=True)
    for values, numbers in groups:
        assert (np.diff(numbers) > 0).all()
        rest = np.delete(values, numbers)
        assert values[numbers].min() >= rest.max()
    assert (kept.layers.shape, kept.heads.shape, kept.units.shape) == ((2,), (2, 3), (2, 64))


def test_layers_that_share_a_table_of_biases_keep_the_same_heads() -> None:
    heads = np.array([[9, 1, 1, 0], [0, 5, 5, 6], [0, 9, 9, 9]]) / 1
    importance = Importance(heads, np.ones((3, 128)), np.array([2.0, 3.0, 1.0]))
    counts = PruningConfig(heads=2, layers=2)
    kept = select(importance, RELATIVE, pruned_shape(RELATIVE, counts))
    assert kept.layers.tolist() == [0, 1] and kept.heads.tolist() == [[0, 1], [0, 1]]
    own = select(importance, WIDE, pruned_shape(WIDE, counts))
    assert own.heads.tolist() == [[0, 1], [1, 3]]


# --- shapes and counts


def test_the_shape_of_a_pruned_model() -> None:
    after = pruned_shape(WIDE, COUNTS)
    assert after == dataclasses.replace(
        WIDE, num_hidden_layers=2, num_attention_heads=3, intermediate_size=64, head_size=2
    )
    assert pruned_shape(WIDE, PruningConfig(ffn=64)).head_size == 0
    assert pruned_shape(after, PruningConfig(heads=1)).head_width == WIDE.head_width


@pytest.mark.parametrize(
    ("counts", "shape", "problem"),
    [
        ({"heads": 13}, ModelConfig(), "heads is 13, the model has 12: choose 12 or less"),
        ({"heads": 3, "ffn": 192}, WIDE, "ffn is 192, the model has 128: choose 128 or less"),
        ({"layers": 4}, WIDE, "layers is 4, the model has 3"),
        ({"heads": 4, "ffn": 128}, WIDE, "nothing is pruned: the model has heads 4, ffn 128 alre"),
        (
            {"layers": 1},
            dataclasses.replace(WIDE, model_type="albert", num_hidden_groups=1),
            r"3 layers share 1 sets of weights \(albert\): only a model whose layers have weights",
        ),
    ],
)
def test_a_shape_that_a_model_cannot_have_is_an_error(
    counts: dict[str, int], shape: ModelConfig, problem: str
) -> None:
    with pytest.raises(ValueError, match=f"^{problem}"):
        pruned_shape(shape, PruningConfig(**counts))


@pytest.mark.parametrize("text", ["heads=9", "layers=5,heads=1", " ffn = 1152 , layers = 5 "])
def test_counts_are_read_in_any_order(text: str) -> None:
    expected = dict(part.split("=") for part in text.replace(" ", "").split(","))
    assert PruningConfig.parse(text).counts == {n: int(x) for n, x in expected.items()}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is no count: expected heads=9,ffn=1152,layers=5, or some of the three"),
        ("heads", "'heads' is no count"),
        ("heads=", "'heads=' is no count"),
        ("heads=9,", "'' is no count"),
        ("heads=9 ffn=64", "heads is '9 ffn=64': expected a whole number"),
        ("heads=1.5", "heads is '1.5': expected a whole number"),
        ("head=9", "'head' cannot be pruned: expected heads=9,ffn"),
        ("heads=9,heads=6", "heads is given twice"),
        ("heads=0", "heads is 0: at least 1 must be kept"),
        ("layers=-2", "layers is -2: at least 1 must be kept"),
        ("ffn=0", "ffn is 0: at least 1 must be kept"),
        ("ffn=1000", "ffn is 1000: expected a multiple of 64, such as 1024"),
        ("ffn=1", "ffn is 1: expected a multiple of 64, such as 64"),
        ("heads=" + "9" * 5000, "heads is '9"),
    ],
)
def test_wrong_counts_are_one_short_line(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as error:
        PruningConfig.parse(text)
    message = str(error.value)
    assert message.startswith(problem)
    assert "\n" not in message and len(message) < 200


def test_counts_are_whole_numbers_and_not_none() -> None:
    for values in ({}, {"heads": None}, {"heads": True}, {"heads": 2.0}):
        with pytest.raises(ValueError, match="expected"):
            PruningConfig(**values)


# --- what others learn of it


def test_a_record_says_what_was_removed() -> None:
    kept = Kept(np.array([0, 2]), np.array([[0, 1, 3], [1, 2, 3]]), np.tile(np.arange(64), (2, 1)))
    record = PruningRecord("small", WIDE, pruned_shape(WIDE, COUNTS), kept, 512, ("a.jsonl",))
    values = record.to_dict()
    assert json.loads(json.dumps(values)) == values
    before, after = (
        sum(weight.size for weight in weights_of(shape).values()) for shape in (WIDE, record.after)
    )
    assert values == {
        "source": "small",
        "data": ["a.jsonl"],
        "windows": 512,
        "num_hidden_layers": [3, 2],
        "num_attention_heads": [4, 3],
        "intermediate_size": [128, 64],
        "weights": [before, after],
        "removed_layers": [1],
        "removed_heads": [[2], [0]],
    }
    assert record.summary().startswith("2 of 3 layers with 3 of 4 heads and 64 of 128 feed-forward")
    card = record.section()
    assert "| 0 | 0 | 0 1 3 |\n| 1 | 2 | 1 2 3 |\n" in card
    assert "on 512 training windows of a.jsonl" in card and "`nq tune`" in card
