"""The shapes of weights equal those that Keras builds; headers are checked before it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from nq.config import ModelConfig
from nq.model import joint
from nq.model.folder import load_config
from nq.model.shapes import layer_flop, weight_shapes, window_gflop
from tests import tiny_models
from tests.golden.families import make

GOLDEN = Path(make.__file__).parent


@pytest.mark.parametrize("family", [*sorted(make.FAMILIES), "pruned"])
def test_shapes_are_those_of_the_model(family: str) -> None:
    config = tiny_models.PRUNED if family == "pruned" else load_config(GOLDEN / family)
    built = {weight.path: tuple(weight.shape) for weight in joint.build(config).weights}
    assert weight_shapes(config) == built


def test_operations_are_the_sum_of_all_matrix_products() -> None:
    heads, width, length = 1, 3, 7
    config = ModelConfig(
        hidden_size=6, num_attention_heads=heads, intermediate_size=10, head_size=width
    )
    products = [  # rows, inner size, columns, count
        (length, config.hidden_size, heads * width, 3),
        (length, heads * width, config.hidden_size, 1),
        (length, config.hidden_size, config.intermediate_size, 1),
        (length, config.intermediate_size, config.hidden_size, 1),
        (length, width, length, config.num_attention_heads),
        (length, length, width, config.num_attention_heads),
    ]
    layer = sum(2 * a * b * c * n for a, b, c, n in products)
    assert layer_flop(config, length) == layer
    assert window_gflop(config, length) == pytest.approx(config.num_hidden_layers * layer / 1e9)
