"""Model folders: saving and loading are inverse; no tensor is lost, no model half filled."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from nq.config import DecisionConfig, ModelConfig, StorageConfig, WindowConfig
from nq.model import checkpoint, joint
from nq.model.folder import ModelSettings, load_config, load_settings, read_tensors, save_settings
from nq.model.names import BERT, table
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import FloatArray
from tests import tiny_models

TABLE = table(tiny_models.SHAPE)
TENSORS = tiny_models.tensors()
OPTIONAL = ("qa_outputs.weight", "qa_outputs.bias", "type_outputs.weight", "type_outputs.bias")


@pytest.fixture(scope="module")
def built() -> keras.Model:
    """A model to fill again and again."""
    return joint.build(tiny_models.SHAPE)


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    """A model folder to write into."""
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def weights(model: keras.Model) -> dict[str, FloatArray]:
    return {weight.path: weight.numpy() for weight in model.weights}


def save(folder: Path, model: keras.Model, like: Path, **options: Any) -> None:
    checkpoint.save(
        folder,
        model,
        tiny_models.SHAPE,
        load_tokenizer(like),
        load_settings(like),
        "card",
        **options,
    )


def load(folder: Path) -> dict[str, FloatArray]:
    model = joint.build(load_config(folder))
    report = checkpoint.fill(model, read_tensors(folder), tiny_models.SHAPE)
    assert report == checkpoint.LoadReport()
    return weights(model)


# --- round trips


def test_float32_weights_are_loaded_exactly(tiny_model: Path) -> None:
    expected = weights(tiny_models.model())
    loaded = load(tiny_model)
    assert loaded.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_array_equal(loaded[path], value)
    files = {path.name for path in tiny_model.iterdir()}
    assert files == {
        *("README.md", "config.json", "model.safetensors", "nq.json"),
        *("tokenizer_config.json", "vocab.txt"),
    }


def test_compact_weights_are_loaded_within_their_precision(
    tiny_model: Path, tmp_path: Path
) -> None:
    save(tmp_path / "compact", tiny_models.model(), tiny_model, storage=StorageConfig("compact"))
    stored = load_file(tmp_path / "compact" / "model.safetensors")
    kinds = {value.dtype.name for name, value in stored.items() if not name.endswith(".scale")}
    assert kinds == {"int8", "float16"}
    loaded = load(tmp_path / "compact")
    for path, value in weights(tiny_models.model()).items():
        if path == "embeddings/word_embeddings":
            step = np.abs(value).max(axis=1, keepdims=True) / 127
            assert (np.abs(loaded[path] - value) <= step * 0.51).all()
        else:
            np.testing.assert_allclose(loaded[path], value, rtol=2**-10, atol=1e-7)


def test_compact_weights_saved_again_are_the_same(tiny_model: Path, tmp_path: Path) -> None:
    once, twice = tmp_path / "once", tmp_path / "twice"
    save(once, tiny_models.model(), tiny_model, storage=StorageConfig("compact"))
    model = joint.build(tiny_models.SHAPE)
    checkpoint.fill(model, read_tensors(once), tiny_models.SHAPE)
    save(twice, model, once, storage=StorageConfig("compact"))
    for name, value in load_file(once / "model.safetensors").items():
        again = load_file(twice / "model.safetensors")[name]
        np.testing.assert_allclose(again, value, rtol=1e-6)


def test_a_folder_can_be_saved_over_itself(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    checkpoint.save(
        folder,
        tiny_models.model(),
        tiny_models.SHAPE,
        load_tokenizer(folder),
        load_settings(folder),
        before["README.md"].decode(),
    )
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_settings_and_config_are_loaded_as_saved(folder: Path) -> None:
    assert load_config(folder) == tiny_models.SHAPE
    wanted = ModelSettings(
        WindowConfig(max_seq_length=128), DecisionConfig("kisialiou", 12, 1.5, -2.0)
    )
    save_settings(folder, wanted)
    assert load_settings(folder) == wanted
    (folder / "nq.json").unlink()
    assert load_settings(folder) == ModelSettings()


# --- every tensor, every weight


@given(
    missing=st.sets(st.sampled_from(OPTIONAL), max_size=4),
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
    for path, weight in TABLE.items():
        assert (path in report.missing) == bool(missing.intersection(weight.tensors))
    assert set(report.unexpected) == extra
    for path, value in weights(built).items():
        is_zero = path in report.missing and path != "span_output/kernel"
        assert value.any() == (not is_zero)


def test_the_table_names_every_weight_and_every_tensor_once(built: keras.Model) -> None:
    assert list(TABLE) != [] and set(TABLE) == {weight.path for weight in built.weights}
    names = [name for weight in TABLE.values() for name in weight.tensors]
    assert sorted(names) == sorted(TENSORS)


def test_an_encoder_without_heads_and_prefix_fills_all_but_the_heads(folder: Path) -> None:
    plain: dict[str, Any] = {
        name.removeprefix("bert."): value for name, value in TENSORS.items() if name not in OPTIONAL
    }
    plain["embeddings.position_ids"] = np.arange(32)[None]
    save_file(plain, folder / "model.safetensors")
    model = joint.build(tiny_models.SHAPE)
    report = checkpoint.fill(model, read_tensors(folder), tiny_models.SHAPE)
    heads = ("span_output/kernel", "span_output/bias", "type_output/kernel", "type_output/bias")
    assert report == checkpoint.LoadReport(heads, ("bert.embeddings.position_ids",))
    for path, value in weights(tiny_models.model()).items():
        if path not in heads:
            np.testing.assert_array_equal(weights(model)[path], value)


def test_old_names_and_half_precision_are_read(folder: Path) -> None:
    def old(name: str) -> str:
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        return name.replace("LayerNorm.bias", "LayerNorm.beta")

    half = {old(name): value.astype(ml_dtypes.bfloat16) for name, value in TENSORS.items()}
    assert all(BERT.canonical(old(name)) == name for name in TENSORS)
    save_file(half, folder / "model.safetensors")
    loaded = load(folder)
    for path, value in weights(tiny_models.model()).items():
        np.testing.assert_allclose(loaded[path], value, rtol=2**-7)


def test_missing_rows_of_word_embeddings_are_drawn_and_reported(built: keras.Model) -> None:
    name, path = "bert.embeddings.word_embeddings.weight", "embeddings/word_embeddings"
    rows = tiny_models.SHAPE.vocab_size - 7
    report = checkpoint.fill(
        built, tiny_models.stored({**TENSORS, name: TENSORS[name][:rows]}), tiny_models.SHAPE
    )
    assert report == checkpoint.LoadReport((f"{path}[{rows}:]",))
    table = weights(built)[path]
    np.testing.assert_array_equal(table[:rows], TENSORS[name][:rows])
    assert 0.005 < table[rows:].std() < 0.04


@pytest.mark.parametrize("compact", [False, True])
def test_word_embeddings_read_by_rows_are_the_same(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compact: bool
) -> None:
    save(
        tmp_path / "m",
        tiny_models.model(),
        tiny_model,
        storage=StorageConfig("compact" if compact else "float32"),
    )
    tensors, name = (
        read_tensors(tmp_path / "m"),
        "bert.embeddings.word_embeddings.weight",
    )
    whole = tensors[name]
    monkeypatch.setattr("nq.model.tensors.CHUNK_BYTES", 7 * 8 * 4)
    blocks = list(tensors.chunks(name))
    assert [first for first, _ in blocks] == list(range(0, tiny_models.SHAPE.vocab_size, 7))
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), whole)
    larger = dataclasses.replace(tiny_models.SHAPE, vocab_size=tiny_models.SHAPE.vocab_size + 5)
    loaded = joint.load(tmp_path / "m", config=larger)
    model = loaded.model
    assert loaded.report == checkpoint.LoadReport((f"embeddings/word_embeddings[{len(whole)}:]",))
    table = weights(model)["embeddings/word_embeddings"]
    np.testing.assert_array_equal(table[: len(whole)], whole)
    assert 0.005 < table[len(whole) :].std() < 0.04


def test_missing_kernels_that_are_zero_are_drawn(folder: Path) -> None:
    plain = {name: value for name, value in TENSORS.items() if name not in OPTIONAL}
    save_file(plain, folder / "model.safetensors")
    read = joint.load(folder)
    assert read.report.lacks_type_head
    loaded = weights(read.model)
    assert 0.005 < loaded["span_output/kernel"].std() < 0.04
    assert not loaded["type_output/kernel"].any()


# --- errors


@given(
    name=st.sampled_from(sorted(TENSORS)),
    change=st.sampled_from(
        [
            lambda x: x[..., :-1],
            lambda x: np.concatenate([x, x]),
            lambda x: x[None],
            lambda x: x.reshape(-1)[0],
            lambda x: x[:0],
        ]
    ),
)
def test_a_wrong_shape_is_named_and_nothing_is_filled(
    built: keras.Model, name: str, change: Callable[[FloatArray], FloatArray]
) -> None:
    before = weights(built)
    wrong = {n: value * 2 for n, value in TENSORS.items()} | {
        name: np.asarray(change(TENSORS[name]))
    }
    with pytest.raises(ValueError, match="do not belong together") as error:
        checkpoint.fill(built, tiny_models.stored(wrong), tiny_models.SHAPE)
    assert name in str(error.value) and "\n" not in str(error.value)
    after = weights(built)
    for path, value in before.items():
        np.testing.assert_array_equal(after[path], value)


def test_each_missing_file_has_its_own_message(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"no model\.safetensors in .*safetensors only"):
        read_tensors(folder)
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match=r"no model in .*: expected config\.json"):
            load_config(place)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_truncated_weights_file_is_damaged(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        read_tensors(folder)


def test_an_8_bit_table_without_its_scale_is_damaged(tiny_model: Path, tmp_path: Path) -> None:
    save(tmp_path / "m", tiny_models.model(), tiny_model, storage=StorageConfig("compact"))
    path = tmp_path / "m" / "model.safetensors"
    stored = load_file(path)
    del stored["bert.embeddings.word_embeddings.weight.scale"]
    save_file(stored, path)
    with pytest.raises(ValueError, match="has 8 bits but no"):
        read_tensors(tmp_path / "m")


def test_a_type_that_numpy_lacks_is_an_error(folder: Path) -> None:
    header = json.dumps({"x": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    data = len(header).to_bytes(8, "little") + header + b"ab"
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(ValueError, match="x is stored as F8_E4M3; expected one of F64, F32"):
        read_tensors(folder)


def test_one_tensor_under_two_names_is_an_error(folder: Path) -> None:
    twice = {**TENSORS, "pooler.dense.bias": TENSORS["bert.pooler.dense.bias"]}
    save_file(twice, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"holds bert\.pooler\.dense\.bias under two names"):
        read_tensors(folder)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON"),
        ("\xff", "is not JSON"),
        ("[]", "holds list, expected a JSON object"),
        ('{"model_type": "gpt2"}', "model_type 'gpt2' is not supported; known are bert, roberta,"),
        ('{"position_embedding_type": "relative_key"}', "'relative_key' is not supported"),
        ('{"hidden_size": "8"}', "hidden_size is '8', expected a positive number"),
        ('{"num_attention_heads": 0}', "num_attention_heads is 0, expected a positive number"),
        ('{"vocab_size": 1.5}', "vocab_size is 1.5, expected"),
        ('{"vocab_size": null}', "vocab_size is None, expected"),
        ('{"layer_norm_eps": true}', "layer_norm_eps is True, expected"),
        ('{"layer_norm_eps": NaN}', "layer_norm_eps is nan, expected"),
        ('{"hidden_act": 1}', "hidden_act is 1, expected a name"),
        ('{"hidden_act": "swish"}', "unknown hidden_act 'swish'"),
        ('{"hidden_size": 10, "num_attention_heads": 3}', "is not a multiple"),
    ],
)
def test_an_unsupported_config_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=problem) as error:
        load_config(tmp_path)
    assert str(tmp_path / "config.json") in str(error.value) and "\n" not in str(error.value)


def test_fields_that_a_config_lacks_have_defaults(tmp_path: Path) -> None:
    values = {"architectures": ["BertModel"], "hidden_size": 16, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps(values), encoding="utf-8")
    expected = dataclasses.replace(ModelConfig(), hidden_size=16, num_attention_heads=2)
    assert load_config(tmp_path) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not JSON"),
        ("3", "holds int, expected a JSON object"),
        ('{"windows": {"max_length": 8}}', "unknown settings"),
        ('{"windows": {"max_seq_length": "8"}}', "nq.json: "),
        ('{"decision": []}', "nq.json: "),
        ('{"decision": {"rule": "guess"}}', "unknown decision 'guess'"),
    ],
)
def test_damaged_settings_are_one_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "nq.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=problem) as error:
        load_settings(tmp_path)
    assert str(tmp_path / "nq.json") in str(error.value) and "\n" not in str(error.value)
