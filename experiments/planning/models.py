"""The shapes of known models, for which no weights are needed."""

from nq.model.config import ModelConfig
from nq.model.folder import load_config
from nq.model.registry import model_folder

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
    """Returns the shape of a model: a name of ``SHAPES``, of an installed model, or a folder."""
    return SHAPES.get(model) or load_config(model_folder(model))
