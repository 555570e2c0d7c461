"""``nq convert``: from any checkpoint to this project's folder, Hugging Face's and exports."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers

import nq
from nq.commands.main import console
from nq.model import joint
from nq.model.folder import ModelFolder, save_settings
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import MODEL_INPUTS
from nq.storage import PART, hold
from tests.conftest import Commands
from tests.golden.families import make
from tests.model.test_families import GOLDEN, assert_same_spans
from tests.model.test_tensorflow_checkpoints import (
    assert_original_logits,
    original_names,
    write_tf1,
)
from tests.support import tiny_models
from tests.support.folders import write
from tests.support.full_disk import small_files

BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
ROWS = tiny_models.rows((16, 11, 6), 16)
BATCHES = [make.windows(1), make.windows(2, 14, (14, 9, 5)), make.windows(3, 3, (2,))]


@pytest.fixture
def tf1(tmp_path: Path) -> Path:
    folder = tmp_path / "google"
    folder.mkdir()
    write_tf1(folder, "bert_joint.ckpt", original_names())
    return folder


@pytest.fixture(params=["bert", "modernbert"])
def hugging_face(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder as ``transformers`` saves it: config, weights, tokenizer.json."""
    folder = Path(shutil.copytree(GOLDEN / request.param, tmp_path / request.param))
    pieces = {piece: i for i, piece in enumerate([*BERT, *tiny_models.LETTERS])}
    tokenizer = Library(models.WordPiece(pieces, unk_token="[UNK]"))
    if request.param == "modernbert":
        tokenizer = Library(models.BPE(pieces, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def run(*arguments: object) -> int:
    return console(["convert", *map(str, arguments)])


def load(folder: Path) -> Any:
    return joint.load_model(ModelFolder(folder)).model


@pytest.mark.slow
@pytest.mark.parametrize("to", ["nq", "savedmodel", "mlflow"])
def test_a_full_disk_is_one_line_that_names_it(
    to: str, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    with small_files(10_000):
        line = commands.error("convert", tiny_model, tmp_path / "new", "--to", to)
    assert line.endswith(": File too large")
    assert str(tmp_path / ".unfinished-new") in line or to == "mlflow"  # which begins in TMPDIR
    assert not list(tmp_path.iterdir())


def test_two_conversions_to_one_folder_and_one_after_a_killed_one(
    tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    new, unfinished = tmp_path / "new", tmp_path / ".unfinished-new"
    with hold(unfinished, PART):
        assert str(unfinished) in commands.error("convert", tiny_model, new)
        write(unfinished / "model" / "config.json")
    assert run(tiny_model, new) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_googles_checkpoint_is_converted(tf1: Path, tmp_path: Path, commands: Commands) -> None:
    result = commands.json("convert", tf1, tmp_path / "ours")
    assert nq.convert(tf1, tmp_path / "again").folder == tmp_path / "again"
    assert result["missing"] == result["unexpected"] == []
    names = {path.name for path in (tmp_path / "ours").iterdir()}
    assert names == {
        *("README.md", "config.json", "model.safetensors", "nq.json"),
        *("tokenizer_config.json", "vocab.txt"),
    }
    assert_original_logits(load(tmp_path / "ours"))
    windows = ModelFolder(tmp_path / "ours").settings.windows
    assert (windows.max_seq_length, windows.max_query_length) == (32, 8)


@pytest.mark.slow
def test_hugging_faces_folder_is_converted_and_converted_back(
    hugging_face: Path, tmp_path: Path, commands: Commands
) -> None:
    ours, back = tmp_path / "ours", tmp_path / "back"
    assert "pooler/kernel" in commands.out("convert", hugging_face, ours)
    assert run(ours, back, "--to", "hf") == 0
    for folder in (ours, back):
        assert_same_spans(load(folder), np.load(hugging_face / "reference.npz"))
        assert load_tokenizer(folder).encode(["abc"]) == load_tokenizer(hugging_face).encode(
            ["abc"]
        )
    assert (ours / "nq.json").is_file() and not (back / "nq.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["tf1", "deberta-v3"])
def test_exports_give_the_same_logits_for_any_batch_and_length(
    family: str, tf1: Path, tmp_path: Path
) -> None:
    import onnxruntime

    source = tf1 if family == "tf1" else GOLDEN / family
    batches = [ROWS, tiny_models.rows((9,), 12)] if family == "tf1" else BATCHES
    assert run(source, tmp_path / "saved", "--to", "savedmodel") == 0
    assert run(source, tmp_path / "onnx", "--to", "onnx") == 0
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    inputs = serve.structured_input_signature[1]
    assert {spec.name for spec in inputs.values()} >= {*MODEL_INPUTS[:2]}
    session = onnxruntime.InferenceSession(str(tmp_path / "onnx" / "model.onnx"))
    given = [one.name for one in session.get_inputs()]
    names = [one.name for one in session.get_outputs()]
    model, rounding = load(source), 3e-5  # of float32, which differs between processors
    for rows in batches:
        saved = serve(**{name: tf.constant(value) for name, value in rows.items()})
        onnx = dict(zip(names, session.run(None, {n: rows[n] for n in given}), strict=True))
        for name, value in model(rows).items():
            np.testing.assert_allclose(saved[name], value, atol=rounding)
            np.testing.assert_allclose(onnx[name], value, atol=rounding)


def test_a_model_with_fewer_heads_is_converted_but_not_to_hugging_faces_folder(
    tiny_vocab: Path, tmp_path: Path, commands: Commands
) -> None:
    shape = dataclasses.replace(tiny_models.SHAPE, num_attention_heads=3, head_size=2)
    model, fewer, new = tiny_models.model(shape=shape), tmp_path / "fewer", tmp_path / "new"
    tiny_models.save(fewer, model, shape, tiny_vocab)
    record = {"source": "whole", "num_attention_heads": [4, 3]}
    save_settings(fewer, dataclasses.replace(ModelFolder(fewer).settings, removed_parts=(record,)))
    assert run(fewer, new) == 0
    assert (ModelFolder(new).config, ModelFolder(new).settings.removed_parts) == (shape, (record,))
    for name, value in load(new)(ROWS).items():
        np.testing.assert_array_equal(value, model(ROWS)[name])
    error = commands.error("convert", fewer, tmp_path / "theirs", "--to", "hf")
    assert "3 heads of 2 columns" in error
