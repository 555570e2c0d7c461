"""The shapes of known models, and the weights and floating-point operations of a shape."""

import math

from nq.model.config import ModelConfig
from nq.model.families import layout_of
from nq.model.folder import ModelFolder
from nq.model.names import TensorShape, weight_table

SHAPES = {
    "bert-base": ModelConfig(),
    "bert-large": ModelConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    ),
    "rembert": ModelConfig(
        vocab_size=250300,
        hidden_size=1152,
        num_hidden_layers=32,
        num_attention_heads=18,
        intermediate_size=4608,
        embedding_size=256,
        model_type="rembert",
    ),
    "deberta-base": ModelConfig(
        type_vocab_size=0,
        layer_norm_eps=1e-7,
        model_type="deberta-v2",
        position_biased_input=False,
        relative_attention=True,
        pos_att_type="c2p|p2c",
        position_buckets=256,
        share_att_key=True,
        norm_rel_ebd="layer_norm",
    ),
}
"""Shapes by name. BERT-Joint is a ``bert-large``."""


def find(model: str) -> ModelConfig:
    """Returns the shape of a model: a name of ``SHAPES``, a folder, or a name."""
    return SHAPES.get(model) or ModelFolder.open(model).config


def weight_shapes(config: ModelConfig) -> dict[str, TensorShape]:
    """Returns the shape of each weight of a model, by the weight's path."""
    return {path: weight.shape for path, weight in weight_table(config, layout_of(config)).items()}


def count_weights(config: ModelConfig) -> int:
    """Returns the number of weights of a model, its heads for answers included."""
    return sum(map(math.prod, weight_shapes(config).values()))


def layer_flop(config: ModelConfig, length: int) -> int:
    """Returns the operations of one layer of the encoder for one window of L pieces.

    A layer multiplies L pieces by four matrices h x a and two h x i, and twice L x a by a x L:
    2 L (4 h a + 2 h i) + 4 L^2 a for h (hidden), i (intermediate) and a (all attention heads
    together). A gated network has three matrices h x i. Disentangled attention multiplies L x a by
    a x 2 span for each of its terms; the projections of relative positions are constants. Tables,
    norms, activations and heads, below 1 %, are ignored.
    """
    hidden = config.hidden_size
    width = config.attention_width
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
