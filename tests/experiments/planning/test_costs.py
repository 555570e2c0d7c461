"""The costs of a model's parts add up to its own; collectives cost what a ring sends."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.planning.costs import all_reduce_s, units
from experiments.planning.devices import Device, TypeTable
from experiments.planning.models import SHAPES, layer_flop, window_gflop
from nq.model.config import ModelConfig
from nq.model.tensors import weight_shapes
from nq.records import FloatArray

DEVICE = Device(TypeTable(10.0, float16=40.0), TypeTable(1.0, float16=1.0), 16, 900, 100, 10)
ALBERT = ModelConfig(model_type="albert", embedding_size=128, num_hidden_groups=1)
CONFIGS = {**SHAPES, "albert": ALBERT}


@pytest.mark.parametrize("name", CONFIGS)
def test_parts_have_all_weights_and_operations(name: str) -> None:
    config = CONFIGS[name]
    parts = units(config, 384)
    weights = {part.weights: part.whole + part.split for part in parts}
    assert sum(weights.values()) == sum(map(math.prod, weight_shapes(config).values()))
    assert len(parts) == config.num_hidden_layers + 2
    layers = sum(part.flop for part in parts if part.is_layer)
    assert layers / 1e9 == pytest.approx(window_gflop(config, 384))
    assert sum(part.flop for part in parts) < 1.02 * layers


def ring_all_reduce(values: list[FloatArray]) -> tuple[list[FloatArray], int, int]:
    """Returns the sums, the number of steps and the numbers that were sent, over a ring."""
    p = len(values)
    parts = [list(np.split(v.copy(), p)) for v in values]
    sent = 0
    for add in (True, False):  # reduce-scatter, all-gather
        for step in range(p - 1):
            moving = [(i, (i - step + (not add)) % p) for i in range(p)]
            messages = [(i, k, parts[i][k].copy()) for i, k in moving]
            for i, k, message in messages:
                after = (i + 1) % p
                parts[after][k] = parts[after][k] + message if add else message
                sent += len(message)
    return [np.concatenate(own) for own in parts], 2 * (p - 1), sent


@given(st.integers(2, 6), st.integers(1, 4))
def test_all_reduce_costs_what_a_ring_sends(devices: int, size: int) -> None:
    draw = np.random.default_rng(devices)
    values = [draw.normal(size=size * devices).astype(np.float32) for _ in range(devices)]
    sums, steps, sent = ring_all_reduce(values)
    assert all(np.allclose(own, sum(values), atol=1e-5) for own in sums)
    assert sent == 2 * (devices - 1) * size * devices
    slow = replace(DEVICE, link_gb_per_s=2.0, link_latency_us=3e6)
    seconds = all_reduce_s(1e9 * size * devices, devices, slow)
    assert seconds == pytest.approx(steps * (3.0 + size / 2.0))


def test_operations_are_the_sum_of_all_matrix_products() -> None:
    hidden, inner, width, length = 6, 10, 3, 7
    config = ModelConfig(
        hidden_size=hidden, num_attention_heads=1, intermediate_size=inner, head_size=width
    )
    linear = 3 * (hidden * width) + width * hidden + 2 * hidden * inner
    attention = length * width * length + length * length * width
    assert layer_flop(config, length) == 2 * (length * linear + attention)
    assert window_gflop(config, length) == pytest.approx(12e-9 * layer_flop(config, length))
