"""BERT-Joint: an encoder with heads for the start, the end and the type of the answer.

Alberti, Lee and Collins 2019, https://arxiv.org/abs/1901.08634.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from nq.config import ModelConfig
from nq.model.dual_encoder import KnownMarkers, LongOnly, Similarity, TextNumbers
from nq.model.encoder import Layers, encoder
from nq.model.shapes import check_length
from nq.records import AnswerType

__all__ = ["INPUTS", "build", "check_length", "connect", "for_full_windows"]

INPUTS = ("input_ids", "input_mask", "segment_ids")


class Unflatten(keras.layers.Layer):
    """Restores the dimension of the windows.

    Call arguments:
        x: ``[B * L, n]``.
        ids: int ``[B, L]``, of which only the length is used.

    Returns:
        ``[B, L, n]``.
    """

    def call(self, x: Any, ids: Any) -> Any:
        return ops.reshape(x, (-1, ops.shape(ids)[1], x.shape[-1]))

    def compute_output_shape(self, x_shape: Any, ids_shape: Any) -> Any:
        return *ids_shape, x_shape[-1]


class Column(keras.layers.Layer):
    """Selects one index of an axis, which is removed.

    Args:
        index: the index.
        axis: 1 or -1.

    Call arguments:
        x: ``[B, L, n]``.

    Returns:
        ``[B, n]`` for axis 1, ``[B, L]`` for axis -1.
    """

    def __init__(self, index: int, axis: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.index, self.axis = index, axis

    def call(self, x: Any) -> Any:
        return x[..., self.index] if self.axis == -1 else x[:, self.index]


def build(
    config: ModelConfig,
    length: int | None = None,
    dtype: str = "float32",
    dropout: float = 0.0,
    seed: int = 0,
    initialize: bool = True,
) -> keras.Model:
    """Builds a BERT-Joint model for batches of any size.

    Args:
        config: shape of the encoder.
        length: pieces in a window, at most ``config.positions``; ``None`` for any length.
        dtype: Keras dtype policy. With ``mixed_bfloat16`` and ``mixed_float16`` weights are
            float32, with ``bfloat16`` and ``float16`` they have that type too.
        dropout: rate of the dropout layers; there are none if it is 0.
        seed: seed of the initial weights and of dropout.
        initialize: whether kernels and embedding tables are drawn at random. Otherwise they are 0,
            which is faster if ``checkpoint.load`` fills them.

    Returns:
        A model from ``input_ids``, ``input_mask`` and ``segment_ids`` (int32 ``[B, length]``) to
        ``start_logits`` and ``end_logits`` (``[B, length]``) and ``type_logits`` (``[B, 5]``),
        which are always float32.

    Raises:
        ValueError: the length exceeds the position table.
    """
    if length:
        check_length(config, length)
    normal = keras.initializers.TruncatedNormal(
        stddev=config.initializer_range, seed=keras.random.SeedGenerator(seed)
    )
    layer = Layers(keras.DTypePolicy(dtype), normal if initialize else keras.initializers.Zeros())
    return connect(config, layer, length, dropout, seed)


def for_full_windows(model: keras.Model, config: ModelConfig) -> keras.Model:
    """Returns a model with the same layers but without the attention mask.

    It takes ``input_ids`` and ``segment_ids`` and is correct for windows without padding only. The
    mask takes 8 % of the encoder's time.
    """
    return connect(config, Layers(None, None, model), full=True)


def connect(
    config: ModelConfig,
    layer: Layers,
    length: int | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    full: bool = False,
) -> keras.Model:
    """Connects the layers of a BERT-Joint model.

    Args:
        config: shape of the encoder.
        layer: creates the layers.
        length, dropout, seed: as in ``build``.
        full: whether no window has padding; there is then no input ``input_mask``.
    """
    inputs = {
        name: keras.Input((length,), dtype="int32", name=name)
        for name in INPUTS
        if not (full and name == "input_mask")
    }
    ids = inputs["input_ids"]
    if config.is_dual_encoder:
        mask = [] if full else [inputs["input_mask"]]
        ids = layer(KnownMarkers, "known_markers", config)(ids)
        texts = layer(TextNumbers, "text_numbers", config)(ids, *mask)
        x = encoder(config, {**inputs, "input_ids": ids}, layer, dropout, seed, full, texts)
        return keras.Model(inputs, _similarity(config, layer, x, ids, texts), name="dual_encoder")
    x = encoder(config, inputs, layer, dropout, seed, full)
    spans = layer.dense(2, "span_output", dtype="float32")(x)
    spans = layer(Unflatten, "span_logits", dtype="float32")(spans, ids)
    start = layer(Column, "start_logits", 0, -1, dtype="float32")(spans)
    end = layer(Column, "end_logits", 1, -1, dtype="float32")(spans)
    first = layer(Column, "first_piece", 0, 1)(layer(Unflatten, "windows")(x, ids))
    pooled = layer.dense(config.hidden_size, "pooler", activation="tanh")(first)
    types = layer.dense(len(AnswerType), "type_output", dtype="float32")(pooled)
    outputs = {"start_logits": start, "end_logits": end, "type_logits": types}
    return keras.Model(inputs, outputs, name="bert_joint")


def _similarity(config: ModelConfig, layer: Layers, x: Any, ids: Any, texts: Any) -> dict[str, Any]:
    """Connects the outputs of a dual encoder (``nq.model.dual_encoder``)."""
    similarity = layer(Similarity, "similarity", config, dtype="float32")(x, ids, texts)
    outputs = {
        name: layer(keras.layers.Identity, name, dtype="float32")(similarity)
        for name in ("start_logits", "end_logits")
    }
    return outputs | {"type_logits": layer(LongOnly, "type_logits", dtype="float32")(ids)}
