"""Google's TensorFlow 1 checkpoints and those of the 2020 port, written by TensorFlow."""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from nq.model import joint
from nq.model.checkpoint import LoadReport
from nq.model.families import encode_config
from nq.model.folder import ModelFolder
from nq.records import FloatArray
from tests.support import tiny_models

Arrays = dict[str, FloatArray]
TENSORS = tiny_models.tensors()
ROWS = tiny_models.rows((16, 11, 6), 16)


def original_names() -> Arrays:
    """Returns the tensors with the names and shapes of google-research/language."""
    heads = {"qa_outputs": "cls/nq/output", "type_outputs": "answer_type_output"}
    arrays: Arrays = {}
    for name, value in TENSORS.items():
        module, _, part = name.rpartition(".")
        theirs = module.replace(".layer.", ".layer_").replace(".", "/")
        if module in heads:
            arrays[f"{heads[module]}_{part}s".replace("biass", "bias")] = value
        elif module.endswith("_embeddings"):
            arrays[theirs] = value
        elif module.endswith("LayerNorm"):
            arrays[f"{theirs}/{'gamma' if part == 'weight' else 'beta'}"] = value
        else:
            kernel = part == "weight"
            arrays[f"{theirs}/{'kernel' if kernel else 'bias'}"] = value.T if kernel else value
    return arrays


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
    (folder / "bert_config.json").write_text(json.dumps(encode_config(tiny_models.SHAPE)))
    tiny_models.write_vocab(folder / "vocab-nq.txt")


class Node(tf.train.Checkpoint):  # type: ignore[misc]
    """An object with children, as a Keras layer is in a checkpoint."""


PORT = {
    "embeddings.word_embeddings.weight": "embedding_lookup.embeddings",
    "embeddings.position_embeddings.weight": "embedding_postprocessor.position_embeddings",
    "embeddings.token_type_embeddings.weight": "embedding_postprocessor.type_embeddings",
    "embeddings.LayerNorm": "embedding_postprocessor.output_layer_norm",
    "encoder.layer": "encoder.layers",
    "attention.self.query": "attention_layer.query_dense",
    "attention.self.key": "attention_layer.key_dense",
    "attention.self.value": "attention_layer.value_dense",
    "attention.output.dense": "attention_output_dense",
    "attention.output.LayerNorm": "attention_layer_norm",
    "intermediate.dense": "intermediate_dense",
    "output.dense": "output_dense",
    "output.LayerNorm": "output_layer_norm",
    "pooler.dense": "pooler_transform",
}
"""Maps names of Hugging Face to attributes in the model of the port."""


def write_tf2(folder: Path, heads: tuple[int, int] = (1, 2)) -> None:
    """Writes what ``tf.train.Checkpoint(model=mk_model()).save(…/model_cpkt)`` writes."""
    numbers = {"bert": 0, "qa_outputs": heads[0], "type_outputs": heads[1]}
    model = Node()
    for name, value in TENSORS.items():
        module, _, path = name.partition(".")
        for theirs, attributes in PORT.items():
            path = path.replace(theirs, attributes)
        if "norm" in path:
            path = path.replace("weight", "gamma").replace("bias", "beta")
        elif path.endswith("weight"):
            path = path.removesuffix("weight") + "kernel"
        node, *parents, last = model, f"layer_with_weights-{numbers[module]}", *path.split(".")
        for parent in parents:
            if not hasattr(node, parent):
                setattr(node, parent, Node())
            node = getattr(node, parent)
        is_kernel = last == "kernel" and module == "bert"  # TDense: [outputs, hidden]
        setattr(node, last, tf.Variable(value.T if is_kernel else value))
    tf.train.Checkpoint(model=model).save(str(folder / "model_cpkt"))
    write_rest(folder)


@pytest.fixture(params=["tf1", "tf2", "tf2-other-order"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "tf1":
        write_tf1(tmp_path, "bert_joint.ckpt", original_names())
    else:
        write_tf2(tmp_path, (1, 2) if request.param == "tf2" else (2, 1))
    return tmp_path


def assert_original_logits(model: Any) -> None:
    """Checks the logits of a BERT with the approximate gelu of Google's code."""
    shape = dataclasses.replace(tiny_models.SHAPE, hidden_act="gelu_new")
    expected = tiny_models.model(shape=shape)(ROWS)
    for name, logits in model(ROWS).items():
        np.testing.assert_allclose(logits, expected[name], atol=1e-5)


def test_every_tensor_is_used_and_the_logits_are_right(folder: Path) -> None:
    loaded = joint.load_model(ModelFolder(folder))
    assert loaded.report == LoadReport()
    assert_original_logits(loaded.model)


def test_a_pretraining_checkpoint_lacks_the_heads(tmp_path: Path) -> None:
    plain: Mapping[str, Any] = {
        **{n: v for n, v in original_names().items() if n.startswith("bert/")},
        "cls/predictions/output_bias": np.zeros(3, np.float32),
        "bert/pooler/dense/kernel/adam_m": np.zeros((8, 8), np.float32),
        "bert/pooler/dense/kernel/adam_v": np.zeros((8, 8), np.float32),
        "global_step": np.int64(7),
    }
    write_tf1(tmp_path, "bert_model.ckpt", plain)
    loaded = joint.load_model(ModelFolder(tmp_path))
    report = loaded.report
    assert report == LoadReport(
        ("span_output/kernel", "span_output/bias", "type_output/kernel", "type_output/bias"),
        ("cls/predictions/output_bias",),
    )
    assert "span_output/kernel" in report.warning()
    assert not np.asarray(loaded.model(ROWS)["type_logits"]).any()


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("damage", "name"), [(Path.unlink, r"\.index .*\.data-"), (halve, "model_cpkt|bert_joint")]
)
def test_a_missing_or_truncated_file_is_named(
    folder: Path, damage: Callable[[Path], object], name: str
) -> None:
    (path,) = folder.glob("*.data-*")
    damage(path)
    with pytest.raises((ValueError, FileNotFoundError), match=name) as error:
        joint.load_model(ModelFolder(folder))
    assert "\n" not in str(error.value)


def test_values_that_are_not_finite_are_named(tmp_path: Path) -> None:
    values = np.full(2, np.nan, np.float32)
    write_tf1(tmp_path, "bert_joint.ckpt", original_names() | {"cls/nq/output_bias": values})
    with pytest.raises(ValueError, match=r"bert_joint\.ckpt.*output_bias.*not finite"):
        joint.load_model(ModelFolder(tmp_path))
