"""The operations of an encoder are those of its matrix products."""

from __future__ import annotations

import pytest

from nq.config import ModelConfig
from nq.model.shapes import layer_flop, window_gflop


@pytest.mark.parametrize("heads", [2, 1])
def test_operations_are_the_sum_of_all_matrix_products(heads: int) -> None:
    width, length = 3, 7
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
