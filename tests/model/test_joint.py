"""BERT-Joint and its encoder equal a slow one; padding, precision, initial weights."""

import dataclasses
from typing import Any

import keras
import numpy as np
import pytest

from nq.model import joint
from nq.model.attention import relative_buckets
from nq.model.config import ModelConfig
from nq.records import FloatArray
from tests.model.slow_bert import SlowBert, relative_bucket
from tests.support import tiny_models

LENGTH = 16
N_PIECES = (16, 11, 6, 4)
ROWS = tiny_models.rows(N_PIECES, LENGTH)
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
SHAPES = {
    "gelu": tiny_models.SHAPE,
    "gelu_new": dataclasses.replace(
        tiny_models.SHAPE, hidden_act="gelu_new", num_attention_heads=4
    ),
    "relu": dataclasses.replace(tiny_models.SHAPE, hidden_act="relu", layer_norm_eps=1e-3),
    "relative": tiny_models.RELATIVE,
    "fewer heads": tiny_models.FEWER_HEADS,
}


def logits(model: keras.Model, rows: dict[str, Any]) -> dict[str, FloatArray]:
    return {name: np.asarray(value) for name, value in model(rows).items()}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_logits_equal_those_of_a_slow_bert_without_padding(shape: ModelConfig) -> None:
    computed = logits(tiny_models.model(shape=shape), ROWS)
    slow = SlowBert(tiny_models.tensors(shape), shape)
    for row, n in enumerate(N_PIECES):
        expected = slow.logits(ROWS["input_ids"][row], ROWS["segment_ids"][row], n)
        for name, value in expected.items():
            np.testing.assert_allclose(computed[name][row, : len(value)], value, atol=1e-5)
    assert np.ptp(computed["start_logits"]) > 0.5


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_every_precision_is_near_float32_and_finite_for_padding_alone(dtype: str) -> None:
    model, exact = tiny_models.model(dtype=dtype), logits(tiny_models.model(), ROWS)
    padding = {name: np.concatenate([row, 0 * row]) for name, row in ROWS.items()}
    for name, value in logits(model, padding).items():
        assert value.dtype == np.float32 and np.isfinite(value).all()
        expected = exact[name]
        difference = np.abs(value[: len(N_PIECES)] - expected)
        if expected.shape[1] == LENGTH:
            difference = difference[ROWS["input_mask"] > 0]
        assert difference.max() < {"float32": 1e-6, "mixed_bfloat16": 0.4}.get(dtype, 0.05)
    half = dtype.removeprefix("mixed_")
    types = {layer.name: layer.compute_dtype for layer in model.layers}
    assert types["layer_0_qkv"] == types["layer_1_output_norm"] == half
    assert {weight.dtype for weight in model.weights} == {"float32"}
    assert keras.config.dtype_policy().name == "float32"  # nothing global was changed


def test_full_windows_give_the_same_logits_without_mask() -> None:
    model = tiny_models.model()
    full = joint.for_full_windows(model, tiny_models.SHAPE)
    rows = tiny_models.rows([LENGTH, LENGTH], LENGTH)
    expected = logits(model, rows)
    del rows["input_mask"]
    for name, value in logits(full, rows).items():
        np.testing.assert_allclose(value, expected[name], atol=1e-6)
    assert all(a is b for a, b in zip(full.weights, model.weights, strict=True))


@pytest.mark.parametrize(("buckets", "length"), [(32, 512), (8, 40)])
def test_distances_have_the_buckets_of_t5(buckets: int, length: int) -> None:
    table = relative_buckets(length, buckets)
    for pos in (0, 1, length // 2, length - 1):
        expected = [relative_bucket(key - pos, buckets) for key in range(length)]
        assert table[pos].tolist() == expected
    np.testing.assert_array_equal(table[1:, 1:], table[:-1, :-1])  # only the distance counts
