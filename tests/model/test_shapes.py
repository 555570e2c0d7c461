"""The shapes of weights equal those that Keras builds; headers are checked before it does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from nq.config import WindowConfig
from nq.model import joint
from nq.model.folder import check, load_config, load_settings
from nq.model.names import MISSING_ROWS
from nq.model.shapes import weight_shapes
from tests import tiny_models
from tests.golden.families import make

GOLDEN = Path(make.__file__).parent


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    """A model folder to write into."""
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def set_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | values), encoding="utf-8")


@pytest.mark.parametrize("family", sorted(make.FAMILIES))
def test_shapes_are_those_of_the_model(family: str) -> None:
    config = load_config(GOLDEN / family)
    built = {weight.path: tuple(weight.shape) for weight in joint.build(config).weights}
    assert weight_shapes(config) == built
    check(GOLDEN / family)


def test_shapes_of_a_pruned_model() -> None:
    built = joint.build(tiny_models.PRUNED)
    assert weight_shapes(tiny_models.PRUNED) == {w.path: tuple(w.shape) for w in built.weights}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"num_hidden_layers": 10**9}, "describes 1000000000 layers, the checkpoint holds 2"),
        ({"vocab_size": 10**9}, "has shape"),
        ({"vocab_size": tiny_models.SHAPE.vocab_size + MISSING_ROWS}, "has shape"),
        ({"max_position_embeddings": 10**9}, "has shape"),
        ({"intermediate_size": 2**62}, "has shape"),
        ({"hidden_size": 2**40}, "has shape"),
        ({"head_size": 2**40}, "has shape"),
        ({"head_size": 3}, "has shape"),
        ({"type_vocab_size": 10**9}, "has shape"),
        ({"model_type": "albert", "num_hidden_layers": 10**9}, "expected at most 128"),
    ],
)
def test_numbers_that_no_weight_supports_are_refused_from_the_headers(
    folder: Path, values: dict[str, Any], problem: str
) -> None:
    set_config(folder, **values)
    with pytest.raises(ValueError, match=problem) as error:
        check(folder)
    assert "\n" not in str(error.value)


def test_weights_larger_than_the_memory_are_refused(folder: Path) -> None:
    """The file has a hole of several TB where the table would be."""
    name, rows = "bert.embeddings.word_embeddings.weight", 2**36
    tensors = load_file(folder / "model.safetensors")
    del tensors[name]
    save_file(tensors, folder / "model.safetensors")
    data = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, end = json.loads(data[8 : 8 + size]), len(data) - 8 - size
    stop = end + rows * 8 * 4
    header[name] = {"dtype": "F32", "shape": [rows, 8], "data_offsets": [end, stop]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data[8 + size :])
        try:
            file.truncate(8 + len(text) + stop)
        except OSError:
            pytest.skip("the file system has no files of this size")
    set_config(folder, vocab_size=rows)
    with pytest.raises(ValueError, match=r"take 1024 GB at least, this machine has"):
        check(folder)


def test_windows_longer_than_the_positions_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="1000000000 is beyond the model's 32 positions"):
        check(folder, WindowConfig(max_seq_length=10**9))


@pytest.mark.parametrize(
    ("weight_map", "problem"),
    [
        ({}, "expected a weight_map"),
        (None, "expected a weight_map"),
        (["model-1.safetensors"], "expected a weight_map"),
        ({"a": 1}, "names the file '1'"),
        ({"a": ["model-1.safetensors"]}, "names the file"),
        ({"a": ""}, "names the file ''"),
        ({"a": "config.json"}, "names the file 'config.json'"),
        ({"a": "/etc/model.safetensors"}, "names the file '/etc/model.safetensors'"),
        ({"a": "../model/model-1.safetensors"}, "in the same folder"),
        ({"a": "a\\model-1.safetensors"}, "in the same folder"),
        ({"a": "model-\x1b.safetensors"}, r"'model-\\x1b.safetensors'"),
        (
            {str(i): f"model-{i}.safetensors" for i in range(9)},
            "9 files, .* missing: model-0.s",
        ),
    ],
)
def test_an_index_names_files_beside_it(folder: Path, weight_map: Any, problem: str) -> None:
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    text = json.dumps({"weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    with pytest.raises((ValueError, FileNotFoundError), match=problem) as error:
        check(folder)
    assert "\n" not in str(error.value) and len(str(error.value)) < 1000


@pytest.mark.parametrize("name", ["config.json", "nq.json", "model.safetensors.index.json"])
def test_deep_json_is_one_line(folder: Path, name: str) -> None:
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / name).write_text("[" * 10**6, encoding="utf-8")
    with pytest.raises(ValueError, match="nested too deeply") as error:
        load_settings(folder)
        check(folder)
    assert str(folder / name) in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"decision": {"long_threshold": NaN}}',
        '{"decision": {"short_threshold": -Infinity}}',
        '{"decision": {"weights": {"bm25": Infinity}}}',
        '{"decision": {"weights": {"bm25": 1e999}}}',
        '{"decision": {"weights": {"bm25": 1' + "0" * 400 + "}}}",
        '{"windows": {"doc_stride": 1' + "0" * 30 + "}}",
    ],
)
def test_settings_are_finite(folder: Path, text: str) -> None:
    (folder / "nq.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"nq\.json: \w+ is .* expected a number that is finite"):
        load_settings(folder)


def test_a_scale_of_another_shape_is_damaged(folder: Path) -> None:
    name, path = "bert.embeddings.word_embeddings.weight", folder / "model.safetensors"
    tensors = load_file(path)
    save_file({**tensors, f"{name}.scale": tensors[name]}, path)
    with pytest.raises(ValueError, match=r"expected \(\d+, 1\) of F64"):
        check(folder)
