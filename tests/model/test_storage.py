"""Stored weights: 8 bits with scales, and several files."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import load_file, save_file

from nq.model import checkpoint, joint, tensor_files
from nq.model.folder import check_model, weight_files
from nq.model.names import WORD_EMBEDDINGS
from nq.records import FloatArray
from tests import tiny_models
from tests.model.test_families import GOLDEN

INT8 = "int8"
WIDE = dataclasses.replace(
    tiny_models.SHAPE, hidden_size=128, intermediate_size=512, num_hidden_layers=3
)
"""A shape with 2.6 MB of weights in float32."""


@pytest.fixture(scope="module")
def wide() -> keras.Model:
    return joint.build(WIDE)


def save(folder: Path, model: Any, storage: str) -> Path:
    folder.mkdir()
    checkpoint.save_weights(folder, model, WIDE, storage)
    return folder


def loaded(folder: Path) -> dict[str, FloatArray]:
    loaded = joint.load_model(folder)
    assert loaded.report == checkpoint.LoadReport()
    return {weight.path: weight.numpy() for weight in loaded.model.weights}


def relative_error(value: FloatArray, expected: FloatArray) -> float:
    return float(np.linalg.norm(value - expected) / np.linalg.norm(expected))


@given(
    arrays.arrays(
        np.float32,
        arrays.array_shapes(min_dims=2, max_dims=2, max_side=9),
        elements=st.floats(-(2.0**99), 2.0**99, width=32),
    ),
)
def test_the_error_is_at_most_half_a_step(value: FloatArray) -> None:
    stored = tensor_files.encode("x", value, WORD_EMBEDDINGS, "int8")
    rows, columns = stored["x.scale"], stored["x.column_scale"]
    decoded = tensor_files.decode(stored["x"], rows, columns)
    assert stored["x"].dtype == np.int8 and decoded.dtype == np.float32
    assert (np.abs(decoded - value) <= 0.5001 * rows * columns).all()


@pytest.mark.parametrize(
    "family", ["albert-groups", "bert", "deberta-v2-own", "distilbert", "modernbert", "mpnet"]
)
def test_every_family_is_stored_in_8_bits(family: str, tmp_path: Path) -> None:
    first = joint.load_model(GOLDEN / family)
    report = first.report
    checkpoint.save_weights(tmp_path, first.model, first.config, INT8, report.missing)
    again = joint.load_model(tmp_path)
    assert again.report == report
    for weight, other in zip(first.model.weights, again.model.weights, strict=True):
        if weight.path not in report.missing and tensor_files.in_8_bits(weight.path):
            assert 0 < relative_error(other.numpy(), weight.numpy()) < 0.01


def divided(folder: Path) -> Path:
    """Divides the weights of a folder into three files with an index, as transformers does."""
    tensors = list(load_file(folder / "model.safetensors").items())
    weight_map: dict[str, str] = {}
    for number in range(3):
        part = dict(tensors[number::3])
        name = f"model-{number + 1:05d}-of-00003.safetensors"
        save_file(part, folder / name)
        weight_map |= dict.fromkeys(part, name)
    (folder / "model.safetensors").unlink()
    text = json.dumps({"weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("store", ["float32", "int8"])
def test_weights_in_several_files_are_the_same(
    wide: keras.Model, tmp_path: Path, store: str
) -> None:
    one = save(tmp_path / "one", wide, store)
    several = divided(save(tmp_path / "several", wide, store))
    assert len(weight_files(several)) == 3
    check_model(several)
    values = loaded(one)
    for path, value in loaded(several).items():
        np.testing.assert_array_equal(value, values[path])
