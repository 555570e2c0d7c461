"""OpenVINO's engine: which products are computed in 8 bits."""

from __future__ import annotations

import numpy as np
import openvino
from openvino import Node

from nq.inference.engine import COLUMNS, Task
from nq.inference.engines.openvino import Engine, converted, products_apart, set_input
from nq.inference.network import Network
from nq.inference.predictor import rows_of
from nq.inference.profile import Profile
from nq.inference.top_k import Selection
from tests import tiny_models


def test_in_8_bits_are_all_products_but_those_of_gelu_and_the_heads() -> None:
    rows = rows_of(tiny_models.features(1, 6, 16))
    network = Network(tiny_models.SHAPE, tiny_models.model())
    profile = Profile.parse("openvino+int8")
    model = Engine(Task(network, profile, Selection(2, True), lambda: rows))._model()
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for product in model.get_ops():
        if product.get_type_name() == "MatMul":
            name = product.get_friendly_name().split("/")[-2].removesuffix("_1")
            found["i8" in kinds_above(product.input_value(1).get_node())].add(name)
    layers = range(tiny_models.SHAPE.num_hidden_layers)
    eight = ("qkv", "attention_output", "intermediate")
    assert found[True] == {f"layer_{i}_{name}" for i in layers for name in eight}
    heads = {"span_output", "pooler", "type_output"}
    assert found[False] == {f"layer_{i}_output" for i in layers} | heads


def test_products_apart_give_what_one_gave() -> None:
    network = Network(tiny_models.SHAPE, tiny_models.model())
    core, one = openvino.Core(), converted(network.model)
    apart = one.clone()
    products_apart(apart)
    kinds = [[node.get_type_name() for node in model.get_ops()] for model in (one, apart)]
    assert (
        kinds[0].count("Split") == tiny_models.SHAPE.num_hidden_layers and "Split" not in kinds[1]
    )
    more = 2 * tiny_models.SHAPE.num_hidden_layers
    assert kinds[1].count("MatMul") == kinds[0].count("MatMul") + more
    features = tiny_models.features(1, 6, 16)
    rows = {name: getattr(features, name).astype(np.int32) for name in COLUMNS[:3]}
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    found = []
    for model in (one, apart):
        compiled = core.compile_model(model, "CPU", exact)
        given = {node.any_name: rows[node.any_name] for node in model.inputs}
        found.append([value for _, value in sorted(compiled(given).to_dict().items(), key=str)])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


def kinds_above(node: Node) -> set[str]:
    """Types of the numbers that a constant is computed from."""
    above = [value.get_node() for value in node.input_values()]
    return {node.get_element_type().get_type_name()}.union(*map(kinds_above, above))


def test_of_a_constant_mask_nothing_is_left() -> None:
    core, masked = openvino.Core(), converted(tiny_models.model())
    full = masked.clone()
    set_input(full, "input_mask", np.ones((2, 16), np.int32))
    rows, found, kinds = tiny_models.rows([16, 16], 16), [], []
    for model in (masked, full):
        model.reshape({node.any_name: [2, 16] for node in model.inputs})
        compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        given = {node.any_name: rows[node.any_name] for node in model.inputs}
        outputs = compiled(given)
        found.append({node.any_name: outputs[node] for node in compiled.outputs})
        ops = compiled.get_runtime_model().get_ordered_ops()
        kinds.append([op.get_rt_info()["layerType"].value for op in ops])
    assert {node.any_name for node in full.inputs} == {"input_ids", "segment_ids"}
    assert kinds[1].count("Input") == kinds[0].count("Input") - 1
    assert "Convert" in kinds[0] and "Convert" not in kinds[1]  # of the mask to a float
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, atol=1e-6)
