"""Model folders: saving and loading are inverse; no tensor is lost, no model half filled."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import keras
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import load_file, save_file

from nq.model import checkpoint, joint, tensor_files
from nq.model.folder import ModelFolder, ModelSettings, save_settings
from nq.model.names import BERT, WORD_EMBEDDINGS, weight_table
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import FloatArray
from tests.model.test_families import GOLDEN
from tests.support import tiny_models
from tests.support.full_disk import small_files

TABLE = weight_table(tiny_models.SHAPE)
TENSORS = tiny_models.tensors()
HEADS = ("qa_outputs.weight", "qa_outputs.bias", "type_outputs.weight", "type_outputs.bias")
WORDS = "bert.embeddings.word_embeddings.weight"


@pytest.fixture(scope="module")
def built() -> keras.Model:
    """A model to fill again and again."""
    return joint.build(tiny_models.SHAPE)


def weights(model: keras.Model) -> dict[str, FloatArray]:
    return {weight.path: weight.numpy() for weight in model.weights}


def save(folder: Path, like: Path, store: str = "float32") -> None:
    tokenizer, settings = load_tokenizer(like), ModelFolder(like).settings
    model = tiny_models.model()
    checkpoint.save(folder, model, tiny_models.SHAPE, tokenizer, settings, "card", store)


def load(folder: Path) -> dict[str, FloatArray]:
    loaded = joint.load_model(ModelFolder(folder))
    assert loaded.report == checkpoint.LoadReport()
    return weights(loaded.model)


def test_float32_weights_are_loaded_exactly(tiny_model: Path, own_model: Path) -> None:
    save(own_model, tiny_model)  # over itself
    np.testing.assert_equal(load(own_model), weights(tiny_models.model()))


def test_an_unfinished_folder_is_no_model(tiny_model: Path, own_model: Path) -> None:
    """Not even if another model was in it before."""
    with small_files(10_000), pytest.raises(OSError, match=r"model\.safetensors"):
        save(own_model, tiny_model)
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        joint.load_model(ModelFolder(own_model))


@given(
    missing=st.sets(st.sampled_from(HEADS), max_size=4),
    extra=st.sets(st.sampled_from(["cls.predictions.bias", "x", "bert.pooler.x"])),
)
def test_every_tensor_is_used_or_unexpected_and_every_weight_filled_or_missing(
    built: keras.Model, missing: set[str], extra: set[str]
) -> None:
    for weight in built.weights:
        weight.assign(np.zeros(weight.shape))
    tensors = {name: value for name, value in TENSORS.items() if name not in missing}
    tensors |= {name: np.zeros(3, np.float32) for name in extra}
    report = checkpoint.fill(built, tiny_models.stored(tensors), tiny_models.SHAPE)
    assert set(report.unexpected) == extra
    loaded = weights(built)
    for path, named in TABLE.items():
        assert (path in report.missing) == bool(missing.intersection(named.tensors))
        is_zero = path in report.missing and path != "span_output/kernel"
        assert loaded[path].any() == (not is_zero)
    if "span_output/kernel" in report.missing:
        assert 0.005 < loaded["span_output/kernel"].std() < 0.04


def test_old_names_and_half_precision_are_read(own_model: Path) -> None:
    def old(name: str) -> str:
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        return name.replace("LayerNorm.bias", "LayerNorm.beta")

    half = {old(name): value.astype(ml_dtypes.bfloat16) for name, value in TENSORS.items()}
    assert all(BERT.canonical(old(name)) == name for name in TENSORS)
    save_file(half, own_model / "model.safetensors")
    save_settings(own_model, ModelSettings())  # without digests
    loaded = load(own_model)
    for path, value in weights(tiny_models.model()).items():
        np.testing.assert_allclose(loaded[path], value, rtol=2**-7)


def test_missing_rows_of_word_embeddings_are_drawn_and_reported(
    tiny_model: Path, tmp_path: Path
) -> None:
    save(tmp_path / "m", tiny_model, "float16")
    files = ModelFolder(tmp_path / "m")
    stored = files.tensors().read(WORDS)
    n = len(stored)
    larger = dataclasses.replace(tiny_models.SHAPE, vocab_size=n + 50, initializer_range=0.5)
    loaded = joint.load_model(files, config=larger)
    assert loaded.report == checkpoint.LoadReport((f"{WORD_EMBEDDINGS}[{n}:]",))
    rows = weights(loaded.model)[WORD_EMBEDDINGS]
    np.testing.assert_array_equal(rows[:n], stored)
    assert rows[n:].std() == pytest.approx(0.5, rel=0.2)


@given(
    name=st.sampled_from(sorted(TENSORS)),
    change=st.sampled_from([lambda x: x[..., :-1], lambda x: x[None], lambda x: x.reshape(-1)[0]]),
)
def test_a_wrong_shape_is_named_and_nothing_is_filled(
    built: keras.Model, name: str, change: Callable[[FloatArray], FloatArray]
) -> None:
    before = weights(built)
    wrong = {n: value * 2 for n, value in TENSORS.items()}
    wrong[name] = np.asarray(change(TENSORS[name]))
    with pytest.raises(ValueError, match=re.escape(name)) as error:
        checkpoint.fill(built, tiny_models.stored(wrong), tiny_models.SHAPE)
    assert "\n" not in str(error.value)
    np.testing.assert_equal(weights(built), before)


# --- 8 bits with scales, and several files


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
    first = joint.load_model(ModelFolder(GOLDEN / family))
    report = first.report
    checkpoint.save_weights(tmp_path, first.model, first.config, "int8", report.missing)
    again = joint.load_model(ModelFolder(tmp_path))
    assert again.report == report
    for weight, other in zip(first.model.weights, again.model.weights, strict=True):
        if weight.path not in report.missing and tensor_files.in_8_bits(weight.path):
            difference, expected = other.numpy() - weight.numpy(), weight.numpy()
            assert 0 < np.linalg.norm(difference) < 0.01 * np.linalg.norm(expected)


def divide(folder: Path) -> None:
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


@pytest.mark.parametrize("store", ["float32", "int8"])
def test_weights_in_several_files_are_the_same(tmp_path: Path, store: str) -> None:
    one, several = tmp_path / "one", tmp_path / "several"
    for folder in (one, several):
        folder.mkdir()
        checkpoint.save_weights(folder, tiny_models.model(), tiny_models.SHAPE, store)
    divide(several)
    assert len(ModelFolder(several).weight_files) == 3
    ModelFolder(several).check()
    np.testing.assert_equal(load(several), load(one))
