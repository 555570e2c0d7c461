"""The shapes of a model's weights, computed from the config without building the model."""

from __future__ import annotations

import math
import os

from nq.config import ModelConfig
from nq.model.names import Part
from nq.records import AnswerType

WORD_EMBEDDINGS = "embeddings/word_embeddings"
MISSING_ROWS = 1024
"""Rows of word embeddings that a checkpoint may lack: the markers, and padding."""

Shape = tuple[int, ...]


def weight_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Returns the shape of each weight of a model, by the weight's path."""
    hidden, inner, width = config.hidden_size, config.intermediate_size, config.table_width
    attention = config.attention_width
    shapes: dict[str, Shape] = {
        WORD_EMBEDDINGS: (config.vocab_size, width),
        "embeddings/position_embeddings": (config.max_position_embeddings, width),
    }
    if config.type_vocab_size:
        shapes["embeddings/segment_embeddings"] = config.type_vocab_size, width
    if config.relative_attention_num_buckets:
        heads = config.num_attention_heads
        shapes["relative_bias/bias_table"] = config.relative_attention_num_buckets, heads
    linear: dict[str, tuple[int, int]] = {}
    if not config.is_dual_encoder:
        linear["pooler"] = hidden, hidden
        linear["span_output"] = hidden, 2
        linear["type_output"] = hidden, len(AnswerType)
    norms = {"embeddings_norm": width}
    if config.embedding_size:
        linear["embeddings_projection"] = width, hidden
    for i in range(config.layer_sets):
        linear |= {
            f"layer_{i}_qkv": (hidden, 3 * attention),
            f"layer_{i}_attention_output": (attention, hidden),
            f"layer_{i}_intermediate": (hidden, inner),
            f"layer_{i}_output": (inner, hidden),
        }
        norms |= {f"layer_{i}_attention_norm": hidden, f"layer_{i}_output_norm": hidden}
    for path, (rows, columns) in linear.items():
        shapes |= {f"{path}/kernel": (rows, columns), f"{path}/bias": (columns,)}
    for path, columns in norms.items():
        shapes |= {f"{path}/gamma": (columns,), f"{path}/beta": (columns,)}
    return shapes


def check_shape(path: str, shape: Shape, part: Part, n_parts: int, stored: Shape) -> None:
    """Checks the shape of a checkpoint's tensor that fills a weight or a part of it.

    Args:
        path: of the weight.
        shape: of the weight.
        part: the tensor.
        n_parts: how many tensors fill the weight.
        stored: shape of the tensor. Word embeddings may lack some rows.

    Raises:
        ValueError: the tensor has another shape.
    """
    *rows, columns = shape
    expected = (*rows, columns // n_parts)
    if part.transposed:
        expected = expected[::-1]
    is_shorter_table = (
        path == WORD_EMBEDDINGS
        and stored[1:] == expected[1:]
        and max(0, expected[0] - MISSING_ROWS) < stored[0] < expected[0]
    )
    if stored != expected and not is_shorter_table:
        raise ValueError(
            f"{part.name} has shape {stored}, the config says {expected}: weights and "
            "config.json do not belong together"
        )


def check_length(config: ModelConfig, length: int) -> None:
    """Checks that a model has positions for windows of ``length`` pieces.

    Raises:
        ValueError: the length exceeds the position table.
    """
    if length > config.positions:
        raise ValueError(
            f"max_seq_length {length} is beyond the model's {config.positions} "
            "positions; choose a smaller one"
        )


def check_memory(config: ModelConfig) -> None:
    """Checks that the weights of a model, 16 bits each, fit into the memory of this machine.

    Raises:
        ValueError: they do not.
    """
    needed = 2 * sum(map(math.prod, weight_shapes(config).values()))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ValueError(
            f"the weights that config.json describes take {needed >> 30} GB at least, this machine "
            f"has {memory >> 30} GB of memory: choose a smaller model"
        )
