"""The operations of a window, and the peak speed of the machine, to compare speeds with."""

from __future__ import annotations

import time

from nq.config import ModelConfig

SIZE, TIMES = 2048, 10
TYPES = ("float32", "bfloat16")


def window_gflop(config: ModelConfig, length: int) -> float:
    """Returns the operations of one window's matrix products in the encoder's layers, in 10^9.

    A layer multiplies L pieces by four matrices h x h and two h x i, and twice L x h by h x L:
    2 L (4 h^2 + 2 h i) + 4 L^2 h. Tables, norms, activations and heads, below 1 %, are ignored.

    Args:
        config: shape of the encoder: its layers, h (hidden) and i (intermediate).
        length: L, pieces in the window.

    >>> minilm = ModelConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536)
    >>> [round(window_gflop(config, 512), 1) for config in (minilm, ModelConfig())]
    [13.3, 96.6]
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    dense = 2 * length * (4 * hidden**2 + 2 * hidden * inner)
    attention = 4 * length**2 * hidden
    return config.num_hidden_layers * (dense + attention) / 1e9


def peaks(size: int = SIZE, times: int = TIMES) -> dict[str, float]:
    """Returns the best GFLOP/s of a large TensorFlow matrix product on the CPU, by type.

    Args:
        size: rows and columns of both factors.
        times: number of timed products.
    """
    import tensorflow as tf

    best = dict.fromkeys(TYPES, 0.0)
    with tf.device("CPU"):
        for name in TYPES:
            factor = tf.cast(tf.random.normal((size, size)), name)
            tf.matmul(factor, factor)
            for _ in range(times):
                started = time.perf_counter()
                tf.matmul(factor, factor)
                best[name] = max(best[name], 2 * size**3 / (time.perf_counter() - started) / 1e9)
    return best
