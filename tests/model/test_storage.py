"""Stored weights: 8 bits with scales, several files, and what is damaged."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import load_file, save_file

from nq.commands.main import console
from nq.config import ModelConfig, StorageConfig
from nq.model import checkpoint, joint, quantize
from nq.model.folder import check, load_settings, weight_files
from nq.model.names import WORD_EMBEDDINGS
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import FloatArray
from tests import tiny_models
from tests.model.test_families import GOLDEN

INT8 = StorageConfig("int8")
WIDE = dataclasses.replace(
    tiny_models.SHAPE, hidden_size=128, intermediate_size=512, num_hidden_layers=3
)
"""A shape with 2.6 MB of weights in float32."""
TABLE = "bert.embeddings.word_embeddings.weight"
KERNEL = "bert.encoder.layer.0.output.dense.weight"


@pytest.fixture(scope="module")
def wide() -> keras.Model:
    return joint.build(WIDE)


def save(folder: Path, model: Any, like: Path, config: ModelConfig, storage: StorageConfig) -> Path:
    settings = load_settings(like)
    checkpoint.save(folder, model, config, load_tokenizer(like), settings, "card", storage)
    return folder


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    """A model folder with weights in 8 bits."""
    return save(tmp_path / "m", tiny_models.model(), tiny_model, tiny_models.SHAPE, INT8)


def loaded(folder: Path) -> dict[str, FloatArray]:
    loaded = joint.load(folder)
    assert loaded.report == checkpoint.LoadReport()
    return {weight.path: weight.numpy() for weight in loaded.model.weights}


def relative_error(value: FloatArray, expected: FloatArray) -> float:
    return float(np.linalg.norm(value - expected) / np.linalg.norm(expected))


def by_rows(value: FloatArray) -> FloatArray:
    """Rounds to 8 bits with scales of the rows alone."""
    step = np.abs(value).max(axis=1, keepdims=True) / 127
    rounded: FloatArray = np.rint(value / step) * step
    return rounded


@given(
    arrays.arrays(
        np.float32,
        arrays.array_shapes(min_dims=2, max_dims=2, max_side=9),
        elements=st.floats(-(2.0**99), 2.0**99, width=32),
    ),
    st.sampled_from(["int8", "compact"]),
)
def test_the_error_is_at_most_half_a_step(value: FloatArray, store: str) -> None:
    stored = quantize.encode("x", value, WORD_EMBEDDINGS, store)
    rows, columns = stored["x.scale"], stored.get("x.column_scale")
    decoded = quantize.decode(stored["x"], *[rows] if columns is None else [rows, columns])
    assert stored["x"].dtype == np.int8 and decoded.dtype == np.float32
    assert (store == "int8") == (columns is not None)
    step = rows * (1 if columns is None else columns)
    assert (np.abs(decoded - value) <= 0.5001 * step).all()


def test_scales_of_columns_keep_one_large_column_from_rounding_the_others_away() -> None:
    value = np.random.default_rng(0).normal(0, 1, (64, 32)).astype(np.float32)
    value[:, 5] *= 100
    stored = quantize.encode("x", value, "layer_0_qkv/kernel", "int8")
    decoded = quantize.decode(stored["x"], stored["x.scale"], stored["x.column_scale"])
    others = np.arange(32) != 5
    error = relative_error(decoded[:, others], value[:, others])
    assert error < 0.02
    assert relative_error(by_rows(value)[:, others], value[:, others]) > 0.2


def test_matrices_have_8_bits_and_scales(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    in_8_bits = {name for name, value in stored.items() if value.dtype == np.int8}
    hidden, inner = tiny_models.SHAPE.hidden_size, tiny_models.SHAPE.intermediate_size
    assert stored[KERNEL].shape == (hidden, inner)
    assert stored[f"{KERNEL}.scale"].shape == (hidden, 1)
    assert stored[f"{KERNEL}.column_scale"].shape == (1, inner)
    scales = {f"{name}.{kind}" for name in in_8_bits for kind in ("scale", "column_scale")}
    assert {name for name in stored if name.endswith("scale")} == scales
    assert len(in_8_bits) == 1 + 6 * tiny_models.SHAPE.num_hidden_layers + 1  # table, pooler
    values = loaded(folder)
    for weight in tiny_models.model().weights:
        if quantize.in_8_bits(weight.path, "int8"):
            assert 0 < relative_error(values[weight.path], weight.numpy()) < 0.01
        else:
            np.testing.assert_array_equal(values[weight.path], weight.numpy())


@pytest.mark.parametrize(
    "family", sorted(path.parent.name for path in GOLDEN.glob("*/config.json"))
)
def test_every_family_is_stored_in_8_bits(family: str, tmp_path: Path) -> None:
    first = joint.load(GOLDEN / family)
    report = first.report
    checkpoint.save_weights(tmp_path, first.model, first.config, INT8, report.missing)
    again = joint.load(tmp_path)
    assert again.report == report
    for weight, other in zip(first.model.weights, again.model.weights, strict=True):
        if weight.path not in report.missing and quantize.in_8_bits(weight.path, "int8"):
            assert 0 < relative_error(other.numpy(), weight.numpy()) < 0.01


def test_values_that_the_type_cannot_hold_are_refused() -> None:
    kernel, bias = "layer_0_qkv/kernel", "layer_0_qkv/bias"
    for path, store, value in (
        (kernel, "int8", np.nan),
        (kernel, "int8", -np.inf),
        (kernel, "float16", 1e6),
        (bias, "compact", np.nan),
    ):
        with pytest.raises(ValueError, match=f"^x has values .* too large for {store}: store the"):
            quantize.encode("x", np.full((2, 2), value, np.float32), path, store)
    assert np.isnan(quantize.encode("x", np.full(2, np.nan, np.float32), bias, "int8")["x"]).all()


# --- several files


@pytest.mark.parametrize(("storage", "files"), [("float32", 3), ("float16", 2), ("int8", 1)])
def test_weights_in_several_files_are_the_same(
    wide: keras.Model, tiny_model: Path, tmp_path: Path, storage: str, files: int
) -> None:
    one = save(tmp_path / "one", wide, tiny_model, WIDE, StorageConfig(storage))
    several = save(tmp_path / "several", wide, tiny_model, WIDE, StorageConfig(storage, 1))
    paths = weight_files(several)
    assert len(paths) == files and max(path.stat().st_size for path in paths) <= 10**6
    assert (several / "model.safetensors").exists() == (files == 1)
    check(several)
    values = loaded(one)
    for path, value in loaded(several).items():
        np.testing.assert_array_equal(value, values[path])
    if files > 1:
        index = json.loads((several / "model.safetensors.index.json").read_bytes())
        stored = [load_file(path) for path in paths]
        assert index["weight_map"] == {
            n: p.name for p, s in zip(paths, stored, strict=True) for n in s
        }
        assert index["metadata"]["total_size"] == sum(v.nbytes for s in stored for v in s.values())


def test_several_files_replace_one(wide: keras.Model, tiny_model: Path, tmp_path: Path) -> None:
    save(tmp_path, wide, tiny_model, WIDE, StorageConfig())
    save(tmp_path, wide, tiny_model, WIDE, StorageConfig(shard_mb=1))
    assert len(weight_files(tmp_path)) == 3


def test_a_tensor_that_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    config = dataclasses.replace(WIDE, intermediate_size=2048, num_hidden_layers=1)
    model = joint.build(config, initialize=False)
    with pytest.raises(ValueError, match=r"dense\.weight takes 1\.0 MB, more than the 1 MB of a"):
        checkpoint.save_weights(tmp_path, model, config, StorageConfig(shard_mb=1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_live_transformers_loads_several_files(
    wide: keras.Model, tiny_model: Path, tmp_path: Path
) -> None:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    folder = save(tmp_path / "ours", wide, tiny_model, WIDE, StorageConfig())
    target = tmp_path / "theirs"
    assert console(["convert", str(folder), str(target), "--to", "hf", "--shard-mb", "1"]) == 0
    assert len(weight_files(target)) == 3
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(target).eval()
    rows = tiny_models.rows((16, 11), 16)
    with torch.no_grad():
        ids, mask, segments = (torch.tensor(rows[name]).long() for name in joint.INPUTS)
        logits = model(input_ids=ids, attention_mask=mask, token_type_ids=segments).start_logits
    real = rows["input_mask"] > 0
    np.testing.assert_allclose(logits.numpy()[real], wide(rows)["start_logits"][real], atol=1e-5)


# --- damage


def no_scale(stored: dict[str, Any]) -> None:
    del stored[f"{KERNEL}.scale"]


def short_scale(stored: dict[str, Any]) -> None:
    stored[f"{KERNEL}.scale"] = stored[f"{KERNEL}.scale"][:-1]


def flat_scale(stored: dict[str, Any]) -> None:
    stored[f"{KERNEL}.scale"] = stored[f"{KERNEL}.scale"][:, 0]


def integer_scale(stored: dict[str, Any]) -> None:
    stored[f"{KERNEL}.scale"] = stored[f"{KERNEL}.scale"].astype(np.int32)


def wrong_columns(stored: dict[str, Any]) -> None:
    stored[f"{KERNEL}.column_scale"] = stored[f"{KERNEL}.column_scale"].T


def nan_columns(stored: dict[str, Any]) -> None:
    stored[f"{KERNEL}.column_scale"][0, 3] = np.nan


def nan_scale(stored: dict[str, Any]) -> None:
    stored[f"{TABLE}.scale"][-1] = np.nan


def negative_scale(stored: dict[str, Any]) -> None:
    stored[f"{KERNEL}.scale"][0] *= -1


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (no_scale, "has 8 bits but no"),
        (short_scale, r"has shape \(8, 16\), .*\.scale \(7, 1\) of F32; expected \(8, 1\) of F64,"),
        (flat_scale, r"\.scale \(8,\) of F32; expected \(8, 1\)"),
        (integer_scale, r"\.scale \(8, 1\) of I32; expected \(8, 1\) of F64, F32, F16, BF16$"),
        (wrong_columns, r"\.column_scale \(16, 1\) of F32; expected \(1, 16\) of"),
        (nan_columns, r"dense\.weight: a scale is negative or not finite; copy or download it"),
        (
            nan_scale,
            r"word_embeddings\.weight: a scale is negative or not finite; copy or download",
        ),
        (negative_scale, r"dense\.weight: a scale is negative or not finite; copy or download it"),
    ],
)
def test_damaged_scales_are_one_line(
    folder: Path,
    damage: Callable[[dict[str, Any]], None],
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = folder / "model.safetensors"
    stored = load_file(path)
    damage(stored)
    save_file(stored, path)
    with pytest.raises(ValueError, match=problem) as error:
        loaded(folder)
    assert str(path) in str(error.value) and "is damaged" in str(error.value)
    assert console(["convert", str(folder), str(folder.parent / "converted")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"nq: error: {error.value}"


def test_a_scale_may_be_in_another_file(folder: Path) -> None:
    values, stored = loaded(folder), load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    scales = {name: value for name, value in stored.items() if name.endswith("scale")}
    save_file(scales, folder / "a.safetensors")
    save_file({n: v for n, v in stored.items() if n not in scales}, folder / "b.safetensors")
    names = {n: "a.safetensors" if n in scales else "b.safetensors" for n in stored}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    for path, value in loaded(folder).items():
        np.testing.assert_array_equal(value, values[path])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "2-of-00003.safetensors is damage"),
        (lambda path: path.write_bytes(b""), "00002-of-00003.safetensors is damaged"),
        (lambda path: path.unlink(), "are missing: model-00002-of-00003.safetensors"),
        (
            lambda path: path.write_bytes(
                path.with_name("model-00001-of-00003.safetensors").read_bytes()
            ),
            "both hold",
        ),
    ],
)
def test_a_damaged_file_of_several_is_one_line(
    wide: keras.Model,
    tiny_model: Path,
    tmp_path: Path,
    change: Callable[[Path], object],
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = save(tmp_path / "m", wide, tiny_model, WIDE, StorageConfig(shard_mb=1))
    change(folder / "model-00002-of-00003.safetensors")
    assert console(["answer", "--model", str(folder), "--no-track"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line
