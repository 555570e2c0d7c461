"""BERT's encoder and those of its relatives as a Keras functional graph, for any Keras backend.

Activations stay two-dimensional, ``[batch * length, hidden]``, between the embeddings and
the heads: compilers then fuse every matrix product with its bias, its activation and the
residual (a Dense on three dimensions hides behind two reshapes). Query, key and value are
one product. No global state: every layer is handed its dtype policy.

Devlin et al. 2019, https://arxiv.org/abs/1810.04805; layers are post-norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import ml_dtypes
from keras import ops

from nq.config import ModelConfig


def _gelu_tanh(x: Any) -> Any:
    return ops.gelu(x, approximate=True)


def _gelu(x: Any) -> Any:
    """The exact form by erf: what Keras writes, by erfc, ONNX does not know."""
    return 0.5 * x * (1.0 + ops.erf(x * 0.70710677))


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
                shape=(rows, config.table_width),
                initializer=self.init,
                name=f"{name}_embeddings",
                autocast=False,  # else the whole table would be cast for every batch
            )
            setattr(self, name, table)

    def call(self, input_ids: Any, segment_ids: Any) -> Any:
        length, first = ops.shape(input_ids)[1], self.config.position_offset
        x = ops.cast(ops.take(self.word, input_ids, axis=0), self.compute_dtype)
        if self.config.type_vocab_size > 1:
            x = x + ops.cast(ops.take(self.segment, segment_ids, axis=0), self.compute_dtype)
        elif self.config.type_vocab_size:
            x = x + ops.cast(self.segment[0], self.compute_dtype)
        x = x + ops.cast(self.position[first : first + length], self.compute_dtype)
        return ops.reshape(x, (-1, self.config.table_width))


class LayerNorm(keras.layers.Layer):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis, in float32.

    Spelled like this, with the axis in a tuple, OpenVINO takes it for one operation; Keras' own,
    x * scale + (beta - mean * scale), it does not, and TensorFlow's rewrites take that for a
    kernel with an epsilon of its own once gamma and beta are constants.

    Call argument: ``x`` ``[N, hidden]``. Returns the same shape.
    """

    def __init__(self, epsilon: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, shape: Any) -> None:
        options = {"shape": (shape[-1],), "dtype": "float32", "autocast": False}
        self.gamma = self.add_weight(initializer="ones", name="gamma", **options)
        self.beta = self.add_weight(initializer="zeros", name="beta", **options)

    def call(self, x: Any) -> Any:
        x = ops.cast(x, "float32")
        centred = x - ops.mean(x, axis=(-1,), keepdims=True)
        variance = ops.mean(ops.square(centred), axis=(-1,), keepdims=True)
        normal = centred / ops.sqrt(variance + self.epsilon)
        return ops.cast(normal * self.gamma + self.beta, self.compute_dtype)


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

    Call arguments: ``qkv`` ``[B * L, 3 * hidden]``, ``ids`` ``[B, L]``, of which only the
    length is read, and ``bias`` ``[B, 1, 1, L]``, or none where every position holds a piece.
    Returns ``[B * L, hidden]``.
    """

    def __init__(self, heads: int, dropout: float, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = heads
        self.dropout = keras.layers.Dropout(dropout, seed=seed) if dropout else None

    def call(self, qkv: Any, ids: Any, bias: Any = None, training: bool = False) -> Any:
        length, hidden = ops.shape(ids)[1], qkv.shape[-1] // 3
        size = hidden // self.heads
        query, key, value = (  # split, not sliced: the gradient of a slice pads with zeros
            ops.reshape(x, (-1, length, self.heads, size)) for x in ops.split(qkv, 3, axis=-1)
        )
        query = ops.transpose(query * size**-0.5, (0, 2, 1, 3))
        scores = ops.matmul(query, ops.transpose(key, (0, 2, 3, 1)))
        weights = ops.softmax(scores if bias is None else scores + bias, axis=-1)
        if self.dropout:
            weights = self.dropout(weights, training=training)
        mixed = ops.matmul(weights, ops.transpose(value, (0, 2, 1, 3)))
        return ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, hidden))


@dataclass(frozen=True)
class Layers:
    """Makes the layers of a model, or hands out those of one that is there, by their names.

    Args:
        dtype: Keras dtype policy of the layers that name none.
        init: initializer of tables and kernels.
        of: the model whose layers, and so whose weights, are shared.
    """

    dtype: Any
    init: Any
    of: keras.Model | None = None

    def __call__(self, kind: type[keras.layers.Layer], name: str, *args: Any, **kwargs: Any) -> Any:
        """The layer ``name``."""
        if self.of is not None:
            return self.of.get_layer(name)
        return kind(*args, name=name, **{"dtype": self.dtype, **kwargs})

    def dense(self, units: int, name: str, activation: Any = None, **kwargs: Any) -> Any:
        """A matrix product with bias."""
        return self(
            keras.layers.Dense,
            name,
            units,
            activation=activation,
            kernel_initializer=self.init,
            **kwargs,
        )


def encoder(
    config: ModelConfig,
    inputs: dict[str, Any],
    layer: Layers,
    dropout: float = 0.0,
    seed: int = 0,
    full: bool = False,
) -> Any:
    """Wires the encoder.

    Args:
        config: its shape.
        inputs: symbolic ``input_ids``, ``input_mask``, ``segment_ids``, each int ``[B, L]``.
        layer: makes the layers.
        dropout: rate of the dropout layers; with 0 there are none.
        seed: of dropout.
        full: every position holds a piece, so that attention needs no mask.

    Returns:
        ``[B * L, hidden]`` in the compute dtype.
    """

    def norm(name: str) -> Any:
        return layer(LayerNorm, name, config.layer_norm_eps)

    def drop(x: Any, offset: int) -> Any:
        if not dropout:
            return x
        return layer(keras.layers.Dropout, f"dropout_{offset}", dropout, seed=seed + offset)(x)

    activation = ACTIVATIONS[config.hidden_act]

    def layers(i: int) -> dict[str, Any]:
        """The layers of one set of weights, by what they do."""
        name = f"layer_{i}"
        return {
            "qkv": layer.dense(3 * config.hidden_size, f"{name}_qkv"),
            "attention": layer(
                SelfAttention,
                f"{name}_attention",
                config.num_attention_heads,
                dropout,
                seed + 10 * i + 5,
            ),
            "attention_output": layer.dense(config.hidden_size, f"{name}_attention_output"),
            "attention_add": layer(keras.layers.Add, f"{name}_attention_add"),
            "attention_norm": norm(f"{name}_attention_norm"),
            "intermediate": layer.dense(
                config.intermediate_size, f"{name}_intermediate", activation
            ),
            "output": layer.dense(config.hidden_size, f"{name}_output"),
            "output_add": layer(keras.layers.Add, f"{name}_output_add"),
            "output_norm": norm(f"{name}_output_norm"),
        }

    ids = inputs["input_ids"]
    bias = None if full else layer(MaskBias, "mask_bias")(inputs["input_mask"])
    x = layer(Embeddings, "embeddings", config, layer.init)(ids, inputs["segment_ids"])
    x = drop(norm("embeddings_norm")(x), 1)
    if config.embedding_size:
        x = layer.dense(config.hidden_size, "embeddings_projection")(x)
    sets = [layers(i) for i in range(config.layer_sets)]
    for i in range(config.num_hidden_layers):
        these = sets[config.layer_set(i)]
        attended = these["attention"](these["qkv"](x), ids, bias)
        attended = drop(these["attention_output"](attended), 10 * i + 6)
        x = these["attention_norm"](these["attention_add"]([x, attended]))
        inner = drop(these["output"](these["intermediate"](x)), 10 * i + 7)
        x = these["output_norm"](these["output_add"]([x, inner]))
    return x
