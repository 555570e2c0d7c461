"""Damaged model folders: each fault is one line that names the file, before anything is built."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from experiments.peers.pipeline import write_model
from nq.config import DecisionConfig, WindowConfig
from nq.model import checkpoint, joint
from nq.model.folder import ModelFolder, ModelSettings, save_settings
from nq.model.model import Model
from tests.support import tiny_models
from tests.support.folders import flip

Damage = Callable[[Path], object]
WEIGHTS = "model.safetensors"
WORDS = "bert.embeddings.word_embeddings.weight"
KERNEL = "bert.encoder.layer.0.output.dense.weight"


@pytest.fixture
def folder(own_model: Path) -> Path:
    """A model folder with weights in 8 bits, without their digests."""
    checkpoint.save_weights(own_model, tiny_models.model(), tiny_models.SHAPE, "int8")
    save_settings(own_model, ModelSettings())
    return own_model


def holds(name: str, text: str) -> Damage:
    return lambda folder: (folder / name).write_bytes(text.encode("latin-1"))


def config(**values: Any) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_bytes()) | values), encoding="utf-8")

    return damage


def tensors(change: Callable[[dict[str, Any]], object]) -> Damage:
    def damage(folder: Path) -> None:
        stored = load_file(folder / WEIGHTS)
        change(stored)
        save_file(stored, folder / WEIGHTS)

    return damage


def index(weight_map: Any) -> Damage:
    def damage(folder: Path) -> None:
        (folder / WEIGHTS).rename(folder / "model-1.safetensors")
        text = json.dumps({"weight_map": weight_map})
        (folder / f"{WEIGHTS}.index.json").write_text(text, encoding="utf-8")

    return damage


def pickle(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


def odd_type(folder: Path) -> None:
    header = json.dumps({"x": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    (folder / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header + b"ab")


def blank_header(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + size] + b" " * (4 << 20)
    (folder / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header + data[8 + size :])


def huge_table(folder: Path) -> None:
    """Makes a hole of 64 GB where the table would be, after all other tensors."""
    path, rows = folder / WEIGHTS, 2**31 - 1
    tensors(lambda stored: [stored.pop(name) for name in list(stored) if WORDS in name])(folder)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, end = json.loads(data[8 : 8 + size]), len(data) - 8 - size
    stop = end + rows * 8 * 4
    header[WORDS] = {"dtype": "F32", "shape": [rows, 8], "data_offsets": [end, stop]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
    os.truncate(path, 8 + len(text) + stop)
    config(vocab_size=rows)(folder)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (shutil.rmtree, r"config\.json"),
        (holds("config.json", "[" * 10**6), r"config\.json"),
        (config(hidden_size="8"), "hidden_size.*'8'"),
        (config(num_hidden_layers=3), "16 of the 53"),
        (config(intermediate_size=2**30), str(2**30)),
        (config(num_hidden_layers=129), "num_hidden_layers.* 129.* 128"),
        (huge_table, "GB"),
        (holds("nq.json", "{"), r"nq\.json"),
        (holds("nq.json", '{"windows": {"max_length": 8}}'), r"nq\.json.*max_length"),
        (lambda folder: (folder / WEIGHTS).unlink(), r"model\.safetensors"),
        (pickle, r"pytorch_model\.bin"),
        (lambda folder: os.truncate(folder / WEIGHTS, 1000), r"model\.safetensors"),
        (blank_header, "4 MiB"),
        (odd_type, r"\bx\b.*'F8_E4M3'"),
        (
            tensors(lambda stored: stored.update({"pooler.dense.bias": stored["qa_outputs.bias"]})),
            r"bert\.pooler\.dense\.bias",
        ),
        (tensors(lambda stored: stored.pop(f"{KERNEL}.scale")), re.escape(KERNEL)),
        (
            tensors(lambda stored: stored.update({f"{KERNEL}.column_scale": stored[WORDS]})),
            r"\.column_scale .*I8.*\(1, 16\)",
        ),
        (
            tensors(lambda stored: stored[f"{WORDS}.scale"].fill(np.nan)),
            f"{WORDS}.* not finite",
        ),
        (
            tensors(lambda stored: stored["qa_outputs.bias"].fill(np.inf)),
            r"model\.safetensors.* qa_outputs\.bias.* not finite",
        ),
        (index({"a": "../model/model-1.safetensors"}), "model-1.safetensors"),
    ],
)
def test_damage_is_one_line(folder: Path, damage: Damage, problem: str) -> None:
    ModelFolder(folder).check()
    damage(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=problem) as error:
        ModelFolder(folder).check()
        _ = ModelFolder(folder).settings
        joint.load_model(ModelFolder(folder))
    assert str(folder) in str(error.value) or "config" in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 1000


def test_a_flipped_bit_in_weights_with_digests_is_found(tiny_model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    ModelFolder(tiny_model).copy(copy, ModelSettings(WindowConfig(doc_stride=64)))
    ModelFolder(copy).check()
    flip(copy / WEIGHTS, -5)
    for read in (ModelFolder.check, ModelFolder.tensors):
        with pytest.raises(ValueError, match=f"{copy / WEIGHTS}"):
            read(ModelFolder(copy))
    save_settings(copy, ModelSettings())  # as in a folder that nq did not write
    ModelFolder(copy).tensors()


def test_settings_and_config_are_loaded_as_saved(folder: Path) -> None:
    assert ModelFolder(folder).config == tiny_models.SHAPE
    settings = ModelSettings(
        WindowConfig(max_seq_length=128), DecisionConfig("kisialiou", 12, 1.5, -2.0)
    )
    save_settings(folder, settings)
    assert ModelFolder(folder).settings == settings
    (folder / "nq.json").unlink()
    assert ModelFolder(folder).settings == ModelSettings()
    Model.open(folder, windows=WindowConfig(max_seq_length=32, max_query_length=8))
    with pytest.raises(ValueError, match=r"1000000000 .* 32"):
        Model.open(folder, windows=WindowConfig(max_seq_length=10**9))
    assert set(ModelFolder(folder).tensors().shapes) == set(tiny_models.tensors())


@pytest.mark.parametrize(
    ("longest", "length", "stride"), [(10**30, 384, 256), (200, 200, 100), (128, 128, 64)]
)
def test_windows_of_a_reader_fit_its_tokenizer(
    tmp_path: Path, longest: int, length: int, stride: int
) -> None:
    folder = write_model(tmp_path / "reader")
    config = {"tokenizer_class": "BertTokenizer", "model_max_length": longest}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    windows = ModelFolder(folder).settings.windows
    assert (windows.max_seq_length, windows.doc_stride) == (length, stride)
    # Also behind the longest question, each window begins within the one before.
    assert stride <= length - windows.max_query_length - 3


def test_no_length_is_one_line(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "reader")
    for longest in ("512", 0.5, -1, True, [1]):
        (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": longest}))
        with pytest.raises(ValueError, match="model_max_length"):
            _ = ModelFolder(folder).settings
