"""Model folders of pretrained encoders, made of ONNX files: the names of their matrices."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from experiments import pretrained

MATRIX = "/encoder/layer.0/output/dense/MatMul"


def test_matrices_are_named_by_their_products(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    table, matrix, bias = (
        draw.normal(size=shape).astype(np.float32) for shape in ((7, 4), (4, 3), (3,))
    )
    name = "encoder.layer.0.output.dense"
    values: dict[str, Any] = {"embeddings.word_embeddings.weight": table, "onnx::MatMul_9": matrix}
    values |= {f"{name}.bias": bias, "embeddings.position_ids": np.arange(7)[None]}
    nodes = [
        helper.make_node("Gather", ["embeddings.word_embeddings.weight", "ids"], ["x"]),
        helper.make_node("MatMul", ["x", "onnx::MatMul_9"], ["y"], MATRIX),
        helper.make_node("MatMul", ["y", "z"], ["scores"], "/encoder/layer.0/attention/MatMul"),
    ]
    given = [helper.make_tensor_value_info("ids", TensorProto.INT64, [None])]
    given.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [3, 3]))
    result = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, 3])]
    stored = [numpy_helper.from_array(value, key) for key, value in values.items()]
    graph = helper.make_graph(nodes, "encoder", given, result, stored)
    onnx.save(helper.make_model(graph), tmp_path / "encoder.onnx")
    weights = dict(pretrained.read_onnx(tmp_path / "encoder.onnx"))
    expected = {"embeddings.word_embeddings.weight": table, f"{name}.bias": bias}
    expected[f"{name}.weight"] = matrix.T
    assert weights.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(weights[key], value)
