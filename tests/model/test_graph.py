"""Tests of OpenVINO's graphs: all families have the logits of TensorFlow."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openvino
import pytest

from nq.inference.engine import Network
from nq.model import joint
from nq.model.folder import ModelFolder
from nq.model.graph import Request, write_in_process
from nq.records import MODEL_INPUTS
from nq.worker import Worker
from tests.golden.families import make
from tests.support import tiny_models

SHAPES = {
    **{name: ModelFolder(make.HERE / name).config for name in make.FAMILIES},
    "fewer heads": tiny_models.FEWER_HEADS,
}


@pytest.fixture(scope="module")
def maker() -> Iterator[Worker]:
    """A process that writes graphs."""
    variables = {"KERAS_BACKEND": "openvino"}
    worker = Worker(write_in_process, name="makes graphs", variables=variables)
    yield worker
    worker.end()


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_logits_equal_those_of_tensorflow(name: str, maker: Worker, tmp_path: Path) -> None:
    config = dataclasses.replace(SHAPES[name], initializer_range=0.4)
    model, core = joint.build(config, seed=7), openvino.Core()
    with Network(config, model).stored() as files:
        request: Request = files, config, tmp_path / "model.xml"
        maker.call(request)
    graph = core.read_model(tmp_path / "model.xml")
    compiled = core.compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    given = np.load(make.HERE / "bert" / "reference.npz")
    for length in (12, 9):
        rows = {name: given[name][:, :length].astype(np.int32) for name in MODEL_INPUTS}
        expected = model(rows, training=False)
        values = compiled({node.any_name: rows[node.any_name] for node in compiled.inputs})
        assert {node.any_name for node in compiled.outputs} == expected.keys()
        for output, logits in expected.items():
            assert np.ptp(logits) > 0.05
            np.testing.assert_allclose(values[output], logits, atol=1e-4, rtol=0)
    names = {node.get_friendly_name() for node in graph.get_ops()}
    last = config.layer_sets - 1
    assert {f"layer_{last}_qkv/0_{i}" for i in range(3)} <= names  # three products
