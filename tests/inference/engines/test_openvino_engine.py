"""Tests of OpenVINO's engine: its graph, and the products that it computes in 8 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino
import pytest
from openvino import Node

from nq.inference.batches import Shape
from nq.inference.engine import Computation, Network
from nq.inference.engines.openvino import Engine, converted, set_input, split_products
from nq.inference.profile import Profile
from nq.inference.reduction import TopK
from nq.inference.scorer import Rows
from tests import tiny_models
from tests.inference.tiny_predictors import LENGTH, item_rows, items

pytestmark = pytest.mark.slow


def engine_of(profile: str, **settings: Any) -> Engine:
    network = Network(tiny_models.SHAPE, tiny_models.model())
    return Engine(Computation(network, Profile.parse(profile), TopK(2, True), **settings))


def compute(model: Any, rows: Rows) -> tuple[dict[str, Any], Any]:
    """Returns the outputs of an OpenVINO model by name, and the compiled model."""
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    outputs = compiled({node.any_name: rows[node.any_name] for node in model.inputs})
    return {node.any_name: outputs[node] for node in compiled.outputs}, compiled


def test_all_products_but_those_after_gelu_and_in_the_heads_are_in_8_bits() -> None:
    engine = engine_of("openvino+int8", calibration=item_rows(items(6)))
    model = converted(engine.computation.network.model)
    split_products(model)
    products: dict[bool, set[str]] = {True: set(), False: set()}
    for node in engine.quantized(model).get_ops():
        if node.get_type_name() == "MatMul":
            name = node.get_friendly_name().split("/")[-2].removesuffix("_1")
            in_8_bits = "i8" in element_types_above(node.input_value(1).get_node())
            products[in_8_bits].add(name)
    layers = range(tiny_models.SHAPE.num_hidden_layers)
    quantized = ("qkv", "attention_output", "intermediate")
    assert products[True] == {f"layer_{i}_{name}" for i in layers for name in quantized}
    heads = {"span_output", "pooler", "type_output"}
    assert products[False] == {f"layer_{i}_output" for i in layers} | heads


def element_types_above(node: Node) -> set[str]:
    """Returns the element types that a constant is computed from."""
    above = [value.get_node() for value in node.input_values()]
    return {node.get_element_type().get_type_name()}.union(*map(element_types_above, above))


def test_products_of_several_matrices_are_split() -> None:
    joined = converted(tiny_models.model())
    split = joined.clone()
    split_products(split)
    before, after = (
        [node.get_type_name() for node in model.get_ops()] for model in (joined, split)
    )
    layers = tiny_models.SHAPE.num_hidden_layers
    assert before.count("Split") == layers and "Split" not in after
    assert after.count("MatMul") == before.count("MatMul") + 2 * layers


def test_a_constant_mask_is_folded_away() -> None:
    masked = converted(tiny_models.model())
    full = masked.clone()
    set_input(full, "input_mask", np.ones((2, LENGTH), np.int32))
    assert {node.any_name for node in full.inputs} == {"input_ids", "segment_ids"}
    rows = tiny_models.rows([LENGTH, LENGTH], LENGTH)
    outputs, kinds = [], []
    for model in (masked, full):
        model.reshape({node.any_name: [2, LENGTH] for node in model.inputs})
        values, compiled = compute(model, rows)
        outputs.append(values)
        ops = compiled.get_runtime_model().get_ordered_ops()
        kinds.append([op.get_rt_info()["layerType"].value for op in ops])
    assert "Convert" in kinds[0] and "Convert" not in kinds[1]  # of the mask to a float
    for name, value in outputs[0].items():
        np.testing.assert_allclose(outputs[1][name], value, atol=1e-6)


def test_threads_that_openvino_does_not_take_are_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = engine_of("openvino", threads=10_000)
    for batch_size in (1, 2):
        engine.compiled(Shape(batch_size, LENGTH))
    (record,) = caplog.records
    assert "OpenVINO ignores its threads: found {" in record.getMessage()
    assert "'INFERENCE_NUM_THREADS': 10000" in record.getMessage()
