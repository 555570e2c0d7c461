"""Google's TensorFlow 1 checkpoints and those of the 2020 port, written by TensorFlow."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from nq.model import checkpoint, joint
from nq.model.checkpoint import LoadReport
from nq.model.folder import load_config, weight_files
from nq.records import FloatArray
from tests import tiny_models
from tests.model.slow_bert import SlowBert

Arrays = dict[str, FloatArray]
TENSORS = tiny_models.tensors()
ROWS = tiny_models.rows((16, 11, 6), 16)
CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 8,
    "initializer_range": 0.02,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": len(tiny_models.VOCABULARY),
}


def original_names() -> Arrays:
    """Returns the tensors with the names and shapes of google-research/language."""
    found: Arrays = {}
    for name, value in TENSORS.items():
        if name.startswith("qa_outputs"):
            found["cls/nq/output_" + ("bias" if name.endswith("bias") else "weights")] = value
        elif name.startswith("type_outputs"):
            found["answer_type_output_" + ("bias" if name.endswith("bias") else "weights")] = value
        elif name.endswith("_embeddings.weight"):
            found[name.removesuffix(".weight").replace(".", "/")] = value
        else:
            theirs = name.replace(".layer.", ".layer_").replace(".", "/")
            if "LayerNorm" in theirs:
                theirs = theirs.replace("/weight", "/gamma").replace("/bias", "/beta")
            elif theirs.endswith("/weight"):
                theirs = theirs.removesuffix("weight") + "kernel"
            found[theirs] = value.T if theirs.endswith("kernel") else value
    return found


def write_tf1(folder: Path, name: str, arrays: Mapping[str, Any]) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [
            tf.compat.v1.get_variable(n, initializer=tf.constant(np.ascontiguousarray(v)))
            for n, v in arrays.items()
        ]
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(variables).save(
            session, str(folder / name), write_meta_graph=False, write_state=False
        )
    write_rest(folder)


def write_rest(folder: Path) -> None:
    (folder / "bert_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    rows = "".join(f"{piece}\n" for piece in tiny_models.VOCABULARY)
    (folder / "vocab-nq.txt").write_text(rows, encoding="utf-8")


class Node(tf.train.Checkpoint):  # type: ignore[misc]
    """An object with children, as a Keras layer is in a checkpoint."""


def write_tf2(folder: Path, heads: tuple[int, int] = (1, 2)) -> None:
    """Writes what ``tf.train.Checkpoint(model=mk_model()).save(…/model_cpkt)`` writes."""

    def linear(name: str) -> Node:
        return Node(
            kernel=tf.Variable(TENSORS[f"{name}.weight"].T),
            bias=tf.Variable(TENSORS[f"{name}.bias"]),
        )

    def norm(name: str) -> Node:
        return Node(
            gamma=tf.Variable(TENSORS[f"{name}.weight"]), beta=tf.Variable(TENSORS[f"{name}.bias"])
        )

    def block(i: int) -> Node:
        layer = f"bert.encoder.layer.{i}"
        return Node(
            attention_layer=Node(
                query_dense=linear(f"{layer}.attention.self.query"),
                key_dense=linear(f"{layer}.attention.self.key"),
                value_dense=linear(f"{layer}.attention.self.value"),
            ),
            attention_output_dense=linear(f"{layer}.attention.output.dense"),
            attention_layer_norm=norm(f"{layer}.attention.output.LayerNorm"),
            intermediate_dense=linear(f"{layer}.intermediate.dense"),
            output_dense=linear(f"{layer}.output.dense"),
            output_layer_norm=norm(f"{layer}.output.LayerNorm"),
        )

    def head(name: str) -> Node:  # TDense: [outputs, hidden]
        return Node(
            kernel=tf.Variable(TENSORS[f"{name}.weight"]),
            bias=tf.Variable(TENSORS[f"{name}.bias"]),
        )

    def table(name: str) -> Any:
        return tf.Variable(TENSORS[f"bert.embeddings.{name}_embeddings.weight"])

    bert = Node(
        embedding_lookup=Node(embeddings=table("word")),
        embedding_postprocessor=Node(
            type_embeddings=table("token_type"),
            position_embeddings=table("position"),
            output_layer_norm=norm("bert.embeddings.LayerNorm"),
        ),
        encoder=Node(layers=[block(0), block(1)]),
        pooler_transform=linear("bert.pooler.dense"),
    )
    spans, types = heads
    model = Node(
        **{
            "layer_with_weights-0": bert,
            f"layer_with_weights-{spans}": head("qa_outputs"),
            f"layer_with_weights-{types}": head("type_outputs"),
        }
    )
    tf.train.Checkpoint(model=model).save(str(folder / "model_cpkt"))
    write_rest(folder)


@pytest.fixture(params=["tf1", "tf2", "tf2-other-order"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "tf1":
        write_tf1(tmp_path, "bert_joint.ckpt", original_names())
    else:
        write_tf2(tmp_path, (1, 2) if request.param == "tf2" else (2, 1))
    yield tmp_path


def load(folder: Path) -> tuple[Any, LoadReport]:
    loaded = joint.load(folder)
    return loaded.model, loaded.report


def assert_original_logits(model: Any) -> None:
    """Checks the logits of a BERT with the approximate gelu of Google's code."""
    slow = SlowBert(TENSORS, dataclasses.replace(tiny_models.SHAPE, hidden_act="gelu_new"))
    found = model(ROWS)
    for row, n in enumerate((16, 11, 6)):
        expected = slow.logits(ROWS["input_ids"][row], ROWS["segment_ids"][row], n)
        for name, value in expected.items():
            mine = np.asarray(found[name])[row, : len(value)]
            np.testing.assert_allclose(mine, value, atol=1e-5)


def test_every_tensor_is_used_and_the_logits_are_right(folder: Path) -> None:
    model, report = load(folder)
    assert report == LoadReport()
    assert report.warning() == ""
    assert_original_logits(model)


def test_saved_as_safetensors_it_is_the_same(folder: Path, tmp_path: Path) -> None:
    model, _ = load(folder)
    checkpoint.save_weights(tmp_path, model, load_config(folder))
    for path in [*tmp_path.glob("*.index"), *tmp_path.glob("*.data-*")]:
        path.unlink()
    again, report = load(tmp_path)
    assert report == LoadReport()
    assert_original_logits(again)


def test_a_pretraining_checkpoint_lacks_the_heads(tmp_path: Path) -> None:
    plain: Mapping[str, Any] = {
        **{n: v for n, v in original_names().items() if n.startswith("bert/")},
        "cls/predictions/output_bias": np.zeros(3, np.float32),
        "bert/pooler/dense/kernel/adam_m": np.zeros((8, 8), np.float32),
        "bert/pooler/dense/kernel/adam_v": np.zeros((8, 8), np.float32),
        "global_step": np.int64(7),
    }
    write_tf1(tmp_path, "bert_model.ckpt", plain)
    model, report = load(tmp_path)
    assert report == LoadReport(
        ("span_output/kernel", "span_output/bias", "type_output/kernel", "type_output/bias"),
        ("cls/predictions/output_bias",),
    )
    assert "left random: span_output/kernel" in report.warning()
    assert not np.asarray(model(ROWS)["type_logits"]).any()


def test_the_weight_files_of_a_folder(folder: Path) -> None:
    files = weight_files(folder)
    assert [path.name.split(".")[-1].split("-")[0] for path in files] == ["index", "data"]


def test_of_several_checkpoints_the_one_with_a_known_name_is_read(tmp_path: Path) -> None:
    write_tf1(tmp_path, "one.ckpt", original_names())
    load(tmp_path)
    write_tf1(tmp_path, "two.ckpt", original_names())
    with pytest.raises(ValueError, match=r"holds the checkpoints one\.ckpt, two\.ckpt: expected"):
        load(tmp_path)
    write_tf1(tmp_path, "bert_joint.ckpt", original_names())
    assert load(tmp_path)[1] == LoadReport()


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "bert_config.json").rename(folder / "elsewhere.json")
    with pytest.raises(FileNotFoundError, match=r"no bert_config\.json in .* beside the Tensor"):
        load(folder)
    (folder / "elsewhere.json").rename(folder / "bert_config.json")
    (data,) = folder.glob("*.data-*")
    data.unlink()
    with pytest.raises(FileNotFoundError, match=r"\.index is there but no .*\.data-…"):
        load(folder)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["index", "data-00000-of-00001"])
@pytest.mark.parametrize("keep", [0, 0.5])
def test_a_truncated_file_is_damaged(folder: Path, suffix: str, keep: float) -> None:
    (path,) = folder.glob(f"*.{suffix}")
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(ValueError, match="is damaged") as error:
        load(folder)
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("num_hidden_layers", 3, "lacks 16 of the 53 tensors"),
        ("num_hidden_layers", 1, "of a layer beyond the 1"),
        ("intermediate_size", 24, "weights and config.json do not belong together"),
        ("vocab_size", 5, "do not belong together"),
    ],
)
def test_a_config_of_another_size_is_an_error(
    folder: Path, key: str, value: int, problem: str
) -> None:
    (folder / "bert_config.json").write_text(json.dumps(CONFIG | {key: value}), encoding="utf-8")
    with pytest.raises(ValueError, match=problem) as error:
        load(folder)
    assert "\n" not in str(error.value)
