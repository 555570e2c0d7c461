"""BERT-Joint: its logits, their shapes, names and types, and what cannot be built."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from nq.model import joint
from nq.records import FloatArray
from tests import tiny_models
from tests.model.slow_bert import SlowBert

LENGTH = 16
N_PIECES = (16, 11, 6)
ROWS = tiny_models.rows(N_PIECES, LENGTH)
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


def logits(model: keras.Model, rows: dict[str, Any]) -> dict[str, FloatArray]:
    return {name: np.asarray(value) for name, value in model(rows).items()}


def test_logits_equal_those_of_a_slow_bert_without_padding() -> None:
    found = logits(tiny_models.model(), ROWS)
    slow = SlowBert(tiny_models.tensors(), tiny_models.SHAPE)
    for row, n in enumerate(N_PIECES):
        expected = slow.logits(ROWS["input_ids"][row], ROWS["segment_ids"][row], n)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name][row, : len(value)], value, atol=1e-5)
    assert np.ptp(found["start_logits"]) > 0.5


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_logits_are_float32_and_finite_in_every_precision(dtype: str) -> None:
    padding = {name: np.concatenate([row, 0 * row]) for name, row in ROWS.items()}
    for value in logits(tiny_models.model(dtype=dtype), padding).values():
        assert value.dtype == np.float32
        assert np.isfinite(value).all()


def test_names_and_shapes() -> None:
    model = tiny_models.model(LENGTH)
    assert tuple(model.input) == joint.INPUTS
    assert {(i.name, i.shape, i.dtype) for i in model.inputs} == {
        (name, (None, LENGTH), "int32") for name in joint.INPUTS
    }
    assert {name: value.shape for name, value in model.output.items()} == {
        "start_logits": (None, LENGTH),
        "end_logits": (None, LENGTH),
        "type_logits": (None, 5),
    }


def test_full_windows_give_the_same_logits_without_mask() -> None:
    model = tiny_models.model()
    full = joint.for_full_windows(model, tiny_models.SHAPE)
    rows = tiny_models.rows([LENGTH, LENGTH], LENGTH)
    expected = logits(model, rows)
    del rows["input_mask"]
    for name, value in logits(full, rows).items():
        np.testing.assert_allclose(value, expected[name], atol=1e-6)
    assert all(a is b for a, b in zip(full.weights, model.weights, strict=True))


def test_fixed_and_free_lengths_give_the_same_logits() -> None:
    free, fixed = tiny_models.model(), tiny_models.model(LENGTH)
    for name, value in logits(fixed, ROWS).items():
        np.testing.assert_allclose(logits(free, ROWS)[name], value, atol=1e-6)


def test_more_padding_changes_no_real_logit() -> None:
    model = tiny_models.model()
    wide = {name: np.pad(row, ((0, 0), (0, 13))) for name, row in ROWS.items()}
    found, wider = logits(model, ROWS), logits(model, wide)
    real = ROWS["input_mask"] > 0
    np.testing.assert_allclose(found["type_logits"], wider["type_logits"], atol=1e-6)
    for name in ("start_logits", "end_logits"):
        np.testing.assert_allclose(found[name][real], wider[name][:, :LENGTH][real], atol=1e-6)


def test_windows_do_not_affect_each_other() -> None:
    model = tiny_models.model()
    whole = logits(model, ROWS)
    for order in ([2, 0, 1], [1]):
        some = logits(model, {name: row[order] for name, row in ROWS.items()})
        for name, value in whole.items():
            np.testing.assert_allclose(some[name], value[order], atol=1e-6)


def test_segments_and_positions_matter() -> None:
    model = tiny_models.model()
    found = logits(model, ROWS)["start_logits"]
    for other in (
        {**ROWS, "segment_ids": 0 * ROWS["segment_ids"]},
        {**ROWS, "input_ids": ROWS["input_ids"][:, ::-1]},
    ):
        assert np.abs(logits(model, other)["start_logits"] - found).max() > 1e-3


def test_windows_beyond_the_position_table_are_an_error() -> None:
    tiny_models.model(32)
    with pytest.raises(ValueError, match="max_seq_length 33 is beyond the model's 32 positions"):
        joint.build(tiny_models.SHAPE, 33)


def test_initial_weights_depend_on_the_seed_only() -> None:
    def weights(seed: int) -> dict[str, FloatArray]:
        built = joint.build(tiny_models.SHAPE, seed=seed)
        return {weight.path: weight.numpy() for weight in built.weights}

    first, again, other = weights(7), weights(7), weights(8)
    for path, value in first.items():
        np.testing.assert_array_equal(value, again[path])
        constant = path.rsplit("/", 1)[1] in ("bias", "gamma", "beta")
        assert constant == np.array_equal(value, other[path])
    assert not np.array_equal(first["layer_0_qkv/kernel"], first["layer_1_qkv/kernel"])
    assert 0.01 < first["embeddings/word_embeddings"].std() < 0.03


def test_building_changes_no_global_setting() -> None:
    before = keras.config.dtype_policy().name
    joint.build(tiny_models.SHAPE, dtype="mixed_bfloat16")
    assert keras.config.dtype_policy().name == before
