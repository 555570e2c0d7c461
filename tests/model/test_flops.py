"""The operations of an encoder are those of its matrix products."""

from __future__ import annotations

import pytest

from nq.config import ModelConfig
from nq.model.flops import layer_flop, window_gflop


def test_operations_are_the_sum_of_all_matrix_products() -> None:
    config, length = ModelConfig(hidden_size=6, num_attention_heads=2, intermediate_size=10), 7
    width = config.hidden_size // config.num_attention_heads
    products = [  # rows, inner size, columns, count
        (length, config.hidden_size, config.hidden_size, 4),
        (length, config.hidden_size, config.intermediate_size, 1),
        (length, config.intermediate_size, config.hidden_size, 1),
        (length, width, length, config.num_attention_heads),
        (length, length, width, config.num_attention_heads),
    ]
    layer = sum(2 * a * b * c * n for a, b, c, n in products)
    assert layer_flop(config, length) == layer
    assert window_gflop(config, length) == pytest.approx(config.num_hidden_layers * layer / 1e9)
