"""The encoder: equal to BERT written out slowly; padding, half precision, activations."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
import pytest

from nq.config import ModelConfig
from nq.model import checkpoint, names
from nq.model.encoder import ACTIVATIONS, Layers, MaskBias, encoder
from nq.records import FloatArray
from tests import tiny_models
from tests.model.slow_bert import SlowBert

LENGTH = 16
N_PIECES = (16, 11, 6, 4)
ROWS = tiny_models.rows(N_PIECES, LENGTH)
HALF = ("mixed_bfloat16", "mixed_float16")


def alone(shape: ModelConfig = tiny_models.SHAPE, dtype: str = "float32") -> keras.Model:
    """The encoder without heads, of any batch and length, with the weights of ``tiny``."""
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in ROWS}
    built = keras.Model(inputs, encoder(shape, inputs, Layers(keras.DTypePolicy(dtype), "zeros")))
    checkpoint.fill(built, tiny_models.tensors(shape), names.table(shape))
    return built


def encode(model: keras.Model, rows: dict[str, Any]) -> FloatArray:
    batch, length = rows["input_ids"].shape
    found = np.asarray(keras.ops.cast(model(rows), "float32"))
    return found.reshape(batch, length, -1)


@pytest.mark.parametrize(
    "shape",
    [
        tiny_models.SHAPE,
        dataclasses.replace(tiny_models.SHAPE, hidden_act="gelu_new", num_attention_heads=4),
        dataclasses.replace(tiny_models.SHAPE, hidden_act="relu", layer_norm_eps=1e-3),
    ],
    ids=["gelu", "gelu_new", "relu"],
)
def test_real_positions_equal_a_slow_bert_that_never_saw_padding(shape: ModelConfig) -> None:
    found = encode(alone(shape), ROWS)
    slow = SlowBert(tiny_models.tensors(shape), shape)
    for row, n in enumerate(N_PIECES):
        expected = slow.encode(ROWS["input_ids"][row], ROWS["segment_ids"][row], n)
        np.testing.assert_allclose(found[row, :n], expected, atol=1e-5)


def test_what_stands_in_the_padding_changes_nothing() -> None:
    model = alone()
    changed = {**ROWS, "input_ids": np.where(ROWS["input_mask"], ROWS["input_ids"], 9)}
    changed["segment_ids"] = np.where(ROWS["input_mask"], ROWS["segment_ids"], 1)
    real = ROWS["input_mask"] > 0
    np.testing.assert_array_equal(encode(model, ROWS)[real], encode(model, changed)[real])


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_stays_near_float32_and_masks_padding(dtype: str) -> None:
    exact, half = encode(alone(), ROWS), encode(alone(dtype=dtype), ROWS)
    real = ROWS["input_mask"] > 0
    np.testing.assert_allclose(half[real], exact[real], atol=0.2 if "bf" in dtype else 0.03)


@pytest.mark.parametrize("dtype", ["float32", *HALF])
def test_a_window_of_padding_only_gives_no_nan(dtype: str) -> None:
    empty = {name: np.zeros((2, LENGTH), np.int32) for name in ROWS}
    assert np.isfinite(encode(alone(dtype=dtype), empty)).all()


@pytest.mark.parametrize("dtype", ["float32", *HALF])
def test_the_mask_leaves_masked_pieces_no_weight_and_room_for_any_score(dtype: str) -> None:
    bias = MaskBias(dtype=keras.DTypePolicy(dtype))(np.array([[1, 0, 1]]))
    assert bias.shape == (1, 1, 1, 3)
    assert keras.backend.standardize_dtype(bias.dtype) == dtype.removeprefix("mixed_")
    scores = np.asarray(keras.ops.cast(bias, "float32"))[0, 0, 0]
    assert np.exp(scores - scores.max()).tolist() == [1, 0, 1]
    assert np.isfinite(np.asarray(keras.ops.cast(bias - 30_000.0, "float32"))).all()


@pytest.mark.parametrize("dtype", ["float32", *HALF])
def test_every_layer_computes_in_the_type_it_was_handed(dtype: str) -> None:
    model = alone(dtype=dtype)
    layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    assert {layer.compute_dtype for layer in layers} == {dtype.removeprefix("mixed_")}
    assert {weight.dtype for weight in model.weights} == {"float32"}


def test_exact_and_approximate_gelu_are_told_apart() -> None:
    x = np.linspace(-4, 4, 81, dtype=np.float32)
    exact, tanh = (np.asarray(ACTIVATIONS[name](x)) for name in ("gelu", "gelu_new"))
    assert 1e-4 < np.abs(exact - tanh).max() < 1e-3


def test_dropout_acts_in_training_only() -> None:
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in ROWS}
    layers = Layers(keras.DTypePolicy("float32"), "zeros")
    built = keras.Model(inputs, encoder(tiny_models.SHAPE, inputs, layers, dropout=0.5))
    checkpoint.fill(built, tiny_models.tensors(), names.table(tiny_models.SHAPE))
    np.testing.assert_array_equal(encode(built, ROWS), encode(alone(), ROWS))
    assert np.abs(np.asarray(built(ROWS, training=True)) - np.asarray(built(ROWS))).max() > 0.1
