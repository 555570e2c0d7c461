"""Tests of OpenVINO's engine: the products that it computes in 8 bits and in bfloat16."""

from pathlib import Path

import openvino
import pytest
from openvino import Node

from nq.inference.engine import Computation, Network
from nq.inference.engines.openvino import Engine, round_gathered_products
from nq.inference.profile import Profile
from nq.inference.reduction import TopK
from nq.model.graph import write_graph
from tests.inference.tiny_predictors import item_rows, items
from tests.support import tiny_models

pytestmark = pytest.mark.slow


def test_all_products_but_those_after_gelu_and_in_the_heads_are_in_8_bits(tmp_path: Path) -> None:
    network = Network(tiny_models.SHAPE, tiny_models.model())
    profile, windows = Profile("openvino+int8"), item_rows(items(6))
    engine = Engine(Computation(network, profile, TopK(2, True), windows))
    products: dict[bool, set[str]] = {True: set(), False: set()}
    for node in engine.quantized(graph(network, tmp_path)).get_ops():
        if node.get_type_name() == "MatMul":
            name = node.get_friendly_name().split("/")[0]
            in_8_bits = "i8" in element_types_above(node.input_value(1).get_node())
            products[in_8_bits].add(name)
    layers = range(tiny_models.SHAPE.num_hidden_layers)
    quantized = ("qkv", "attention_output", "intermediate")
    assert products[True] == {f"layer_{i}_{name}" for i in layers for name in quantized}
    heads = {"span_output", "pooler", "type_output"}
    assert products[False] == {f"layer_{i}_output" for i in layers} | heads


def graph(network: Network, folder: Path) -> openvino.Model:
    """Returns the graph of a network, whose files are in ``folder``."""
    with network.stored() as files:
        write_graph(files, network.config, folder / "model.xml")
    return openvino.Core().read_model(folder / "model.xml")


def element_types_above(node: Node) -> set[str]:
    """Returns the element types that a constant is computed from."""
    above = [value.get_node() for value in node.input_values()]
    return {node.get_element_type().get_type_name()}.union(*map(element_types_above, above))


def test_products_with_relative_positions_are_rounded(tmp_path: Path) -> None:
    shape = tiny_models.DEBERTA
    model = graph(Network(shape, tiny_models.model(shape=shape)), tmp_path)
    round_gathered_products(model)
    types = [n.get_element_type() for n in model.get_ops() if n.get_type_name() == "MatMul"]
    assert types.count(openvino.Type.bf16) == 2 * shape.num_hidden_layers  # c2p and p2c
