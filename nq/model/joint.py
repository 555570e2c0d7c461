"""BERT-Joint: the encoder with heads for start, end and type of the answer.

Alberti, Lee and Collins 2019, https://arxiv.org/abs/1901.08634.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from nq.config import ModelConfig
from nq.model.encoder import encoder
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
    batch_size: int | None = None,
    dtype: str = "float32",
    dropout: float = 0.0,
    seed: int = 0,
    fresh: bool = True,
) -> keras.Model:
    """The model with fresh weights.

    Args:
        config: shape of the encoder.
        length: pieces in a window, pinned, or ``None`` for any; at most ``config.positions``.
        batch_size: pinned, or ``None`` for any.
        dtype: Keras policy: ``float32``, ``mixed_bfloat16`` or ``mixed_float16``.
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
    policy = keras.DTypePolicy(dtype)
    inputs = {
        name: keras.Input((length,), batch_size=batch_size, dtype="int32", name=name)
        for name in INPUTS
    }
    init = keras.initializers.TruncatedNormal(
        stddev=config.initializer_range, seed=keras.random.SeedGenerator(seed)
    )
    if not fresh:
        init = keras.initializers.Zeros()
    x = encoder(config, inputs, policy, init, dropout, seed)

    def head(units: int, name: str, dtype: Any, activation: str | None = None) -> Any:
        return keras.layers.Dense(
            units, activation=activation, kernel_initializer=init, name=name, dtype=dtype
        )

    def column(x: Any, index: int, axis: int, name: str, dtype: Any) -> Any:
        return Column(index, axis, name=name, dtype=dtype)(x)

    ids = inputs["input_ids"]
    spans = head(2, "span_output", "float32")(x)
    spans = Unflatten(name="span_logits", dtype="float32")(spans, ids)
    start = column(spans, 0, -1, "start_logits", "float32")
    end = column(spans, 1, -1, "end_logits", "float32")
    first = column(Unflatten(name="windows", dtype=policy)(x, ids), 0, 1, "first_piece", policy)
    pooled = head(config.hidden_size, "pooler", policy, "tanh")(first)
    types = head(len(AnswerType), "type_output", "float32")(pooled)
    outputs = {"start_logits": start, "end_logits": end, "type_logits": types}
    return keras.Model(inputs, outputs, name="bert_joint")
