"""The size of a model, computed from its config: weights, windows, operations."""

from __future__ import annotations

import math
import os

from nq.model.config import ModelConfig
from nq.model.families import layout_of
from nq.model.names import Shape, weight_table


def weight_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Returns the shape of each weight of a model, by the weight's path."""
    return {path: weight.shape for path, weight in weight_table(config, layout_of(config)).items()}


def count_weights(config: ModelConfig) -> int:
    """Returns the number of weights of a model, its heads for answers included."""
    return sum(map(math.prod, weight_shapes(config).values()))


def check_length(config: ModelConfig, length: int) -> None:
    """Checks that a model has positions for windows of ``length`` pieces."""
    if length > config.positions:
        raise ValueError(
            f"max_seq_length {length} is beyond the model's {config.positions} "
            "positions; choose a smaller one"
        )


def check_memory(config: ModelConfig) -> None:
    """Checks that the weights of a model, 16 bits each, fit into the memory of this machine."""
    needed = 2 * count_weights(config)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ValueError(
            f"the weights that config.json describes take {needed >> 30} GB at least, this machine "
            f"has {memory >> 30} GB of memory: choose a smaller model"
        )


def layer_flop(config: ModelConfig, length: int) -> int:
    """Returns the operations of one layer of the encoder for one window of L pieces.

    A layer multiplies L pieces by four matrices h x a and two h x i, and twice L x a by a x L:
    2 L (4 h a + 2 h i) + 4 L^2 a for h (hidden), i (intermediate) and a (all attention heads
    together). Tables, norms, activations and heads, below 1 %, are ignored.
    """
    hidden, inner, width = config.hidden_size, config.intermediate_size, config.attention_width
    return 2 * length * (4 * hidden * width + 2 * hidden * inner) + 4 * length**2 * width


def window_gflop(config: ModelConfig, length: int) -> float:
    """Returns the operations of one window in all layers of the encoder, in 10^9.

    >>> minilm = ModelConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536)
    >>> [round(window_gflop(config, 512), 1) for config in (minilm, ModelConfig())]
    [13.3, 96.6]
    """
    return config.num_hidden_layers * layer_flop(config, length) / 1e9
