"""BERT-Joint: the encoder with heads for start, end and type of the answer.

Alberti, Lee and Collins 2019, https://arxiv.org/abs/1901.08634.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from nq.config import ModelConfig
from nq.model.encoder import Layers, encoder
from nq.records import AnswerType

INPUTS = ("input_ids", "input_mask", "segment_ids")


class Unflatten(keras.layers.Layer):
    """``[B * L, n]`` -> ``[B, L, n]``, with the lengths of ``ids`` ``[B, L]``."""

    def call(self, x: Any, ids: Any) -> Any:
        return ops.reshape(x, (-1, ops.shape(ids)[1], x.shape[-1]))


class Column(keras.layers.Layer):
    """One column of the last axis (``axis=-1``) or the first row of each window (``axis=1``)."""

    def __init__(self, index: int, axis: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.index, self.axis = index, axis

    def call(self, x: Any) -> Any:
        return x[..., self.index] if self.axis == -1 else x[:, self.index]


def check_length(config: ModelConfig, length: int) -> None:
    """Raises a ``ValueError`` if windows of ``length`` are beyond the position table."""
    if length > config.positions:
        raise ValueError(
            f"max_seq_length {length} is beyond the model's {config.positions} "
            "positions; choose a smaller one"
        )


def build(
    config: ModelConfig,
    length: int | None = None,
    dtype: str = "float32",
    dropout: float = 0.0,
    seed: int = 0,
    fresh: bool = True,
) -> keras.Model:
    """The model with fresh weights, for batches of any size.

    Args:
        config: shape of the encoder.
        length: pieces in a window, pinned, or ``None`` for any; at most ``config.positions``.
        dtype: Keras policy: ``float32``, or ``mixed_bfloat16`` and ``mixed_float16`` with
            weights in float32, or ``bfloat16`` and ``float16`` with the weights in them too.
        dropout: rate of the dropout layers; with 0 there are none.
        seed: of the fresh weights and of dropout.
        fresh: draw the weights; else they are 0, for ``checkpoint.load`` to fill, which is
            faster for a large model.

    Returns:
        A model of ``{input_ids, input_mask, segment_ids}`` (int32 ``[B, length]``) to
        ``{start_logits, end_logits}`` (``[B, length]``) and ``type_logits`` (``[B, 5]``),
        always float32.

    Raises:
        ValueError: ``length`` is beyond the position table.
    """
    if length:
        check_length(config, length)
    init = keras.initializers.TruncatedNormal(
        stddev=config.initializer_range, seed=keras.random.SeedGenerator(seed)
    )
    if not fresh:
        init = keras.initializers.Zeros()
    layer = Layers(keras.DTypePolicy(dtype), init)
    return _wired(config, layer, length, dropout, seed, full=False)


def for_full_windows(model: keras.Model, config: ModelConfig) -> keras.Model:
    """The same layers without a mask: right only where every position holds a piece.

    It takes ``input_ids`` and ``segment_ids`` alone. Adding the mask is 8 % of the encoder.
    """
    return _wired(config, Layers(None, None, of=model), None, 0.0, 0, full=True)


def _wired(
    config: ModelConfig, layer: Layers, length: int | None, dropout: float, seed: int, full: bool
) -> keras.Model:
    inputs = {
        name: keras.Input((length,), dtype="int32", name=name)
        for name in INPUTS
        if not (full and name == "input_mask")
    }
    x = encoder(config, inputs, layer, dropout, seed, full)
    ids = inputs["input_ids"]
    spans = layer.dense(2, "span_output", dtype="float32")(x)
    spans = layer(Unflatten, "span_logits", dtype="float32")(spans, ids)
    start = layer(Column, "start_logits", 0, -1, dtype="float32")(spans)
    end = layer(Column, "end_logits", 1, -1, dtype="float32")(spans)
    first = layer(Column, "first_piece", 0, 1)(layer(Unflatten, "windows")(x, ids))
    pooled = layer.dense(config.hidden_size, "pooler", "tanh")(first)
    types = layer.dense(len(AnswerType), "type_output", dtype="float32")(pooled)
    outputs = {"start_logits": start, "end_logits": end, "type_logits": types}
    return keras.Model(inputs, outputs, name="bert_joint")
