"""Tests of OpenVINO's engine: its graph, and the products that it computes in 8 bits."""

import pytest
from openvino import Node

from nq.inference.engine import Computation, Network
from nq.inference.engines.openvino import Engine, converted, split_products
from nq.inference.profile import Profile
from nq.inference.reduction import TopK
from tests.inference.tiny_predictors import item_rows, items
from tests.support import tiny_models

pytestmark = pytest.mark.slow


def test_all_products_but_those_after_gelu_and_in_the_heads_are_in_8_bits() -> None:
    network = Network(tiny_models.SHAPE, tiny_models.model())
    profile, windows = Profile("openvino+int8"), item_rows(items(6))
    engine = Engine(Computation(network, profile, TopK(2, True), windows))
    model = converted(network.model)
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
