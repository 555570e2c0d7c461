"""The encoder: equal to a slow implementation; padding, half precision, activations."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
import pytest

from nq.config import ModelConfig
from nq.model import checkpoint
from nq.model.encoder import ACTIVATIONS, Layers, MaskBias, encoder, relative_buckets
from nq.records import FloatArray
from tests import tiny_models
from tests.model.slow_bert import SlowBert, relative_bucket

LENGTH = 16
N_PIECES = (16, 11, 6, 4)
ROWS = tiny_models.rows(N_PIECES, LENGTH)
HALF = ("mixed_bfloat16", "mixed_float16")


def encoder_model(shape: ModelConfig = tiny_models.SHAPE, dtype: str = "float32") -> keras.Model:
    """Returns the encoder without heads, for any batch size and length."""
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in ROWS}
    built = keras.Model(inputs, encoder(shape, inputs, Layers(keras.DTypePolicy(dtype), "zeros")))
    checkpoint.fill(built, tiny_models.stored(tiny_models.tensors(shape)), shape)
    return built


def encode(model: keras.Model, rows: dict[str, Any]) -> FloatArray:
    batch, length = rows["input_ids"].shape
    outputs = np.asarray(keras.ops.cast(model(rows), "float32"))
    return outputs.reshape(batch, length, -1)


@pytest.mark.parametrize(
    "shape",
    [
        tiny_models.SHAPE,
        dataclasses.replace(tiny_models.SHAPE, hidden_act="gelu_new", num_attention_heads=4),
        dataclasses.replace(tiny_models.SHAPE, hidden_act="relu", layer_norm_eps=1e-3),
        tiny_models.RELATIVE,
        tiny_models.PRUNED,
    ],
    ids=["gelu", "gelu_new", "relu", "relative", "pruned"],
)
def test_pieces_equal_those_of_a_slow_bert_without_padding(shape: ModelConfig) -> None:
    encoded = encode(encoder_model(shape), ROWS)
    slow = SlowBert(tiny_models.tensors(shape), shape)
    for row, n in enumerate(N_PIECES):
        expected = slow.encode(ROWS["input_ids"][row], ROWS["segment_ids"][row], n)
        np.testing.assert_allclose(encoded[row, :n], expected, atol=1e-5)


def test_ids_in_the_padding_change_nothing() -> None:
    model = encoder_model()
    changed = {**ROWS, "input_ids": np.where(ROWS["input_mask"], ROWS["input_ids"], 9)}
    changed["segment_ids"] = np.where(ROWS["input_mask"], ROWS["segment_ids"], 1)
    real = ROWS["input_mask"] > 0
    np.testing.assert_array_equal(encode(model, ROWS)[real], encode(model, changed)[real])


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_stays_near_float32_and_masks_padding(dtype: str) -> None:
    exact, half = encode(encoder_model(), ROWS), encode(encoder_model(dtype=dtype), ROWS)
    errors = np.abs(half - exact)[ROWS["input_mask"] > 0]
    largest, mean = (0.4, 0.03) if "bf" in dtype else (0.03, 0.003)
    assert errors.max() < largest and 0 < errors.mean() < mean
    assert exact.std() > 1


@pytest.mark.parametrize("dtype", ["float32", *HALF])
def test_a_window_of_padding_only_gives_no_nan(dtype: str) -> None:
    empty = {name: np.zeros((2, LENGTH), np.int32) for name in ROWS}
    assert np.isfinite(encode(encoder_model(dtype=dtype), empty)).all()


@pytest.mark.parametrize("dtype", ["float32", *HALF])
def test_padding_gets_no_attention_and_scores_do_not_overflow(dtype: str) -> None:
    bias = MaskBias(dtype=keras.DTypePolicy(dtype))(np.array([[1, 0, 1]]))
    assert bias.shape == (1, 1, 1, 3)
    assert keras.backend.standardize_dtype(bias.dtype) == dtype.removeprefix("mixed_")
    scores = np.asarray(keras.ops.cast(bias, "float32"))[0, 0, 0]
    assert np.exp(scores - scores.max()).tolist() == [1, 0, 1]
    assert np.isfinite(np.asarray(keras.ops.cast(bias - 30_000.0, "float32"))).all()


@pytest.mark.parametrize("dtype", ["float32", *HALF])
def test_every_layer_computes_in_the_given_type(dtype: str) -> None:
    model = encoder_model(dtype=dtype)
    layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    assert {layer.compute_dtype for layer in layers} == {dtype.removeprefix("mixed_")}
    assert {weight.dtype for weight in model.weights} == {"float32"}


@pytest.mark.parametrize(("buckets", "length"), [(32, 512), (8, 40), (64, 200)])
def test_distances_have_the_buckets_of_t5(buckets: int, length: int) -> None:
    table = relative_buckets(length, buckets)
    for pos in (0, 1, length // 2, length - 1):
        expected = [relative_bucket(key - pos, buckets) for key in range(length)]
        assert table[pos].tolist() == expected
    assert set(table.ravel()) <= set(range(buckets))
    np.testing.assert_array_equal(table[1:, 1:], table[:-1, :-1])  # only the distance counts


def test_all_layers_share_one_table_of_biases() -> None:
    paths = [weight.path for weight in encoder_model(tiny_models.RELATIVE).weights]
    assert paths.count("relative_bias/bias_table") == 1
    assert len(paths) == 1 + len(encoder_model().weights)


def test_exact_and_approximate_gelu_differ() -> None:
    x = np.linspace(-4, 4, 81, dtype=np.float32)
    exact, tanh = (np.asarray(ACTIVATIONS[name](x)) for name in ("gelu", "gelu_new"))
    assert 1e-4 < np.abs(exact - tanh).max() < 1e-3


def test_dropout_is_active_in_training_only() -> None:
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in ROWS}
    layers = Layers(keras.DTypePolicy("float32"), "zeros")
    built = keras.Model(inputs, encoder(tiny_models.SHAPE, inputs, layers, dropout=0.5))
    checkpoint.fill(built, tiny_models.stored(tiny_models.tensors()), tiny_models.SHAPE)
    np.testing.assert_array_equal(encode(built, ROWS), encode(encoder_model(), ROWS))
    assert np.abs(np.asarray(built(ROWS, training=True)) - np.asarray(built(ROWS))).max() > 0.1
