"""BERT's encoder and those of its relatives as a Keras functional graph, for any Keras backend.

Activations stay two-dimensional, ``[batch * length, hidden]``, between the embeddings and
the heads: compilers then fuse every matrix product with its bias, its activation and the
residual (a Dense on three dimensions hides behind two reshapes). Query, key and value are
one product. No global state: every layer is handed its dtype policy.

Devlin et al. 2019, https://arxiv.org/abs/1810.04805; layers are post-norm.
"""

from __future__ import annotations

from typing import Any

import keras
import ml_dtypes
from keras import ops

from nq.config import ModelConfig


def _gelu_tanh(x: Any) -> Any:
    return ops.gelu(x, approximate=True)


def _gelu(x: Any) -> Any:
    return ops.gelu(x, approximate=False)


ACTIVATIONS = {"gelu": _gelu, "gelu_new": _gelu_tanh, "relu": ops.relu}


class Embeddings(keras.layers.Layer):
    """Sum of word, position and segment embeddings.

    A segment table of one row is added everywhere, whatever ``segment_ids`` say.

    Call arguments: ``input_ids`` and ``segment_ids``, both int ``[B, L]``.
    Returns ``[B * L, table_width]``.
    """

    def __init__(self, config: ModelConfig, init: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config, self.init = config, init

    def build(self, *shapes: Any) -> None:
        config = self.config
        tables = {
            "word": config.vocab_size,
            "position": config.max_position_embeddings,
            "segment": config.type_vocab_size,
        }
        for name, rows in tables.items():
            if not rows:
                continue
            table = self.add_weight(
                shape=(rows, config.table_width), initializer=self.init, name=f"{name}_embeddings"
            )
            setattr(self, name, table)

    def call(self, input_ids: Any, segment_ids: Any) -> Any:
        length, first = ops.shape(input_ids)[1], self.config.position_offset
        x = ops.take(ops.cast(self.word, self.compute_dtype), input_ids, axis=0)
        if self.config.type_vocab_size > 1:
            x = x + ops.take(ops.cast(self.segment, self.compute_dtype), segment_ids, axis=0)
        elif self.config.type_vocab_size:
            x = x + ops.cast(self.segment[0], self.compute_dtype)
        x = x + ops.cast(self.position[first : first + length], self.compute_dtype)
        return ops.reshape(x, (-1, self.config.table_width))


class MaskBias(keras.layers.Layer):
    """Attention bias: 0 where there is a piece, the type's own minimum where there is none.

    Call argument: ``input_mask`` int ``[B, L]``. Returns ``[B, 1, 1, L]``. A fixed -1e9
    would overflow to -inf in float16 and turn rows of padding into NaN.
    """

    def call(self, input_mask: Any) -> Any:
        minimum = float(ml_dtypes.finfo(self.compute_dtype).min) / 2
        bias = (1 - ops.cast(input_mask, self.compute_dtype)) * minimum
        return bias[:, None, None, :]


class SelfAttention(keras.layers.Layer):
    """Multi-head attention between the pieces of each window, before the output projection.

    Call arguments: ``qkv`` ``[B * L, 3 * hidden]`` and ``bias`` ``[B, 1, 1, L]``.
    Returns ``[B * L, hidden]``.
    """

    def __init__(self, heads: int, dropout: float, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = heads
        self.dropout = keras.layers.Dropout(dropout, seed=seed) if dropout else None

    def call(self, qkv: Any, bias: Any, training: bool = False) -> Any:
        length, hidden = ops.shape(bias)[-1], qkv.shape[-1] // 3
        size = hidden // self.heads
        query, key, value = (  # split, not sliced: the gradient of a slice pads with zeros
            ops.reshape(x, (-1, length, self.heads, size)) for x in ops.split(qkv, 3, axis=-1)
        )
        query = ops.transpose(query * size**-0.5, (0, 2, 1, 3))
        scores = ops.matmul(query, ops.transpose(key, (0, 2, 3, 1))) + bias
        weights = ops.softmax(scores, axis=-1)
        if self.dropout:
            weights = self.dropout(weights, training=training)
        mixed = ops.matmul(weights, ops.transpose(value, (0, 2, 1, 3)))
        return ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, hidden))


def encoder(
    config: ModelConfig,
    inputs: dict[str, Any],
    dtype: Any,
    init: Any,
    dropout: float = 0.0,
    seed: int = 0,
) -> Any:
    """Wires the encoder.

    Args:
        config: its shape.
        inputs: symbolic ``input_ids``, ``input_mask``, ``segment_ids``, each int ``[B, L]``.
        dtype: Keras dtype policy of every layer.
        init: initializer of tables and kernels.
        dropout: rate of the dropout layers; with 0 there are none.
        seed: of dropout.

    Returns:
        ``[B * L, hidden]`` in the compute dtype.
    """

    def dense(units: int, name: str, activation: Any = None) -> Any:
        return keras.layers.Dense(
            units, activation=activation, kernel_initializer=init, name=name, dtype=dtype
        )

    def norm(name: str) -> Any:
        return keras.layers.LayerNormalization(
            epsilon=config.layer_norm_eps, name=name, dtype=dtype
        )

    def drop(x: Any, offset: int) -> Any:
        if not dropout:
            return x
        return keras.layers.Dropout(dropout, seed=seed + offset, dtype=dtype)(x)

    activation = ACTIVATIONS[config.hidden_act]

    def layers(i: int) -> dict[str, Any]:
        """The layers of one set of weights, by what they do."""
        return {
            "qkv": dense(3 * config.hidden_size, f"layer_{i}_qkv"),
            "attention": SelfAttention(
                config.num_attention_heads,
                dropout,
                seed + 10 * i + 5,
                name=f"layer_{i}_attention",
                dtype=dtype,
            ),
            "attention_output": dense(config.hidden_size, f"layer_{i}_attention_output"),
            "attention_add": keras.layers.Add(name=f"layer_{i}_attention_add", dtype=dtype),
            "attention_norm": norm(f"layer_{i}_attention_norm"),
            "intermediate": dense(config.intermediate_size, f"layer_{i}_intermediate", activation),
            "output": dense(config.hidden_size, f"layer_{i}_output"),
            "output_add": keras.layers.Add(name=f"layer_{i}_output_add", dtype=dtype),
            "output_norm": norm(f"layer_{i}_output_norm"),
        }

    bias = MaskBias(name="mask_bias", dtype=dtype)(inputs["input_mask"])
    x = Embeddings(config, init, name="embeddings", dtype=dtype)(
        inputs["input_ids"], inputs["segment_ids"]
    )
    x = drop(norm("embeddings_norm")(x), 1)
    if config.embedding_size:
        x = dense(config.hidden_size, "embeddings_projection")(x)
    sets = [layers(i) for i in range(config.layer_sets)]
    for i in range(config.num_hidden_layers):
        layer = sets[config.layer_set(i)]
        attended = layer["attention"](layer["qkv"](x), bias)
        attended = drop(layer["attention_output"](attended), 10 * i + 6)
        x = layer["attention_norm"](layer["attention_add"]([x, attended]))
        inner = drop(layer["output"](layer["intermediate"](x)), 10 * i + 7)
        x = layer["output_norm"](layer["output_add"]([x, inner]))
    return x
