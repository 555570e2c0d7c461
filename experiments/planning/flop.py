"""The floating-point operations of a model, computed from its config."""

from nq.model.config import ModelConfig


def layer_flop(config: ModelConfig, length: int) -> int:
    """Returns the operations of one layer of the encoder for one window of L pieces.

    A layer multiplies L pieces by four matrices h x a and two h x i, and twice L x a by a x L:
    2 L (4 h a + 2 h i) + 4 L^2 a for h (hidden), i (intermediate) and a (all attention heads
    together). A gated network has three matrices h x i. Disentangled attention multiplies L x a by
    a x 2 span for each of its terms; the projections of relative positions are constants. Tables,
    norms, activations and heads, below 1 %, are ignored.
    """
    hidden, width = config.hidden_size, config.attention_width
    inner = config.intermediate_columns + config.intermediate_size
    relative = 2 * config.relative_span * len(config.relative_terms)
    products = 4 * hidden * width + hidden * inner + relative * width
    return 2 * length * products + 4 * length**2 * width


def window_gflop(config: ModelConfig, length: int) -> float:
    """Returns the operations of one window in all layers of the encoder, in 10^9.

    >>> minilm = ModelConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536)
    >>> [round(window_gflop(config, 512), 1) for config in (minilm, ModelConfig())]
    [13.3, 96.6]
    """
    return config.num_hidden_layers * layer_flop(config, length) / 1e9
