"""The shapes of known models, for which no weights are needed."""

from __future__ import annotations

import os

from nq.config import ModelConfig
from nq.errors import Error
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
}
"""Shapes by name. BERT-Joint is a ``bert-large``."""


def find(model: str) -> ModelConfig:
    """Returns the shape of a model: a name of ``SHAPES``, of an installed model, or a folder."""
    if model in SHAPES:
        return SHAPES[model]
    try:
        return load_config(model_folder(model))
    except (FileNotFoundError, Error) as error:
        if os.sep in model or os.path.exists(model):  # noqa: PTH110 - false for what is no path
            raise
        raise Error(f"{error}; or a shape: {', '.join(SHAPES)}") from error
