"""The encoder of BERT and of related families as a Keras functional graph, for any Keras backend.

Devlin et al. 2019, https://arxiv.org/abs/1810.04805; layers are post-norm.

Activations are two-dimensional, ``[B * L, hidden]`` for B windows of L pieces, from the embeddings
to the heads: compilers then fuse every matrix product with its bias, its activation and the
residual, which the two reshapes around a Dense on three dimensions prevent. Query, key and value
are one product. There is no global state: each layer gets its dtype policy as an argument.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import ml_dtypes
import numpy as np
from keras import ops

from nq.model.config import ModelConfig
from nq.records import IntArray

FARTHEST = 128  # pieces, beyond which all distances share a bucket, in T5 and MPNet


def _gelu(x: Any) -> Any:
    """Computes the exact form by erf, because ONNX lacks the erfc that Keras uses."""
    return 0.5 * x * (1.0 + ops.erf(x * 0.70710677))


ACTIVATIONS = {"gelu": _gelu, "gelu_new": ops.gelu, "relu": ops.relu}  # by default with tanh


class Embeddings(keras.layers.Layer):
    """Adds word, position and segment embeddings.

    Ids, segments and positions, by default those from the beginning of the window, are int
    ``[B, L]``, the result is ``[B * L, config.table_width]``. A segment table of one row is added
    to every piece; segments are then ignored.
    """

    def __init__(self, config: ModelConfig, initializer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config, self.initializer = config, initializer

    def build(self, *shapes: Any) -> None:
        config = self.config
        tables = {
            "word": config.vocab_size,
            "position": config.max_position_embeddings,
            "segment": config.type_vocab_size,
        }
        for name, rows in tables.items():
            if rows:
                table = self.add_weight(
                    shape=(rows, config.table_width),
                    initializer=self.initializer,
                    name=f"{name}_embeddings",
                    autocast=False,  # autocast would convert the whole table for every batch
                )
                setattr(self, name, table)

    def call(self, input_ids: Any, segment_ids: Any, positions: Any = None) -> Any:
        length, first = ops.shape(input_ids)[1], self.config.position_offset
        x = ops.cast(ops.take(self.word, input_ids, axis=0), self.compute_dtype)
        if self.config.type_vocab_size > 1:
            x = x + ops.cast(ops.take(self.segment, segment_ids, axis=0), self.compute_dtype)
        elif self.config.type_vocab_size:
            x = x + ops.cast(self.segment[0], self.compute_dtype)
        if positions is None:
            position = self.position[first : first + length]
        else:
            position = ops.take(self.position, first + positions, axis=0)
        x = x + ops.cast(position, self.compute_dtype)
        return ops.reshape(x, (-1, self.config.table_width))

    def compute_output_shape(
        self, input_ids_shape: Any, segment_ids_shape: Any, positions_shape: Any = None
    ) -> Any:
        return None, self.config.table_width  # JAX cannot infer it for windows of any length


class LayerNorm(keras.layers.Layer):
    """Computes (x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis, in float32.

    OpenVINO recognizes this form, with the axis in a tuple, as one operation. It does not recognize
    the form of Keras, x * scale + (beta - mean * scale), which TensorFlow moreover rewrites to a
    kernel with another epsilon if gamma and beta are constants.
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
    """Turns a mask, 1 for pieces and 0 for padding, into an attention bias ``[B, 1, 1, L]``.

    The bias is 0 for pieces and half the type's minimum for padding. A constant such as -1e9 would
    overflow to -inf in float16 and turn rows of padding into NaN.
    """

    def call(self, input_mask: Any) -> Any:
        return self.bias(input_mask)[:, None, None, :]

    def bias(self, mask: Any) -> Any:
        """Returns the bias in the shape of the mask."""
        minimum = float(ml_dtypes.finfo(self.compute_dtype).min) / 2
        return (1 - ops.cast(mask, self.compute_dtype)) * minimum


class TextBias(MaskBias):
    """Turns text numbers ``[B, L]`` into a bias ``[B, 1, L, L]`` that masks all other texts."""

    def call(self, numbers: Any) -> Any:
        return self.bias(same_text(numbers))[:, None]


class TextPositions(keras.layers.Layer):
    """Counts the position of each piece within its text, from text numbers int ``[B, L]``.

    A window has ``length`` pieces at most. The sums are integers, because an engine that computes
    in bfloat16 would round others.
    """

    def __init__(self, length: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.before = np.tri(length, k=-1, dtype=np.int32)

    def call(self, numbers: Any) -> Any:
        length = ops.shape(numbers)[1]
        before = ops.convert_to_tensor(self.before)[:length, :length]
        return ops.sum(ops.cast(same_text(numbers), "int32") * before, axis=-1)


def same_text(numbers: Any) -> Any:
    """Returns bool ``[B, L, L]``: which pieces are of one text, by their numbers ``[B, L]``."""
    return numbers[:, :, None] == numbers[:, None, :]


class RelativeBias(keras.layers.Layer):
    """Computes an attention bias for each head from the distance between two pieces.

    Only the length of ``ids``, ``[B, L]``, is used. The result is ``[1, heads, L, L]``, with rows
    for queries and columns for keys.
    """

    def __init__(self, config: ModelConfig, initializer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        buckets = config.relative_attention_num_buckets
        self.table_shape, self.initializer = (buckets, config.num_attention_heads), initializer
        self.buckets = relative_buckets(config.positions, buckets)

    def build(self, shape: Any) -> None:
        self.table = self.add_weight(
            shape=self.table_shape,
            initializer=self.initializer,
            name="bias_table",
            autocast=False,  # the gradient is a sum over all pairs of pieces, in float32
        )

    def call(self, ids: Any) -> Any:
        length = ops.shape(ids)[1]
        buckets = ops.convert_to_tensor(self.buckets)[:length, :length]
        bias = ops.take(ops.transpose(self.table), buckets, axis=1)
        return ops.cast(bias, self.compute_dtype)[None]


def relative_buckets(length: int, buckets: int) -> IntArray:
    """Returns the bucket of each pair of query and key position, int32 ``[length, length]``.

    One half of the buckets is for keys at or before the query, the other for keys after it. In each
    half, half of the buckets are single distances; the others grow with the distance, up to
    ``FARTHEST``. Raffel et al. 2020, https://arxiv.org/abs/1910.10683, bidirectional.

    >>> relative_buckets(4, 8)
    array([[0, 5, 6, 6],
           [1, 0, 5, 6],
           [2, 1, 0, 5],
           [2, 2, 1, 0]], dtype=int32)
    """
    pos, half = np.arange(length), buckets // 2
    single = half // 2
    distance = np.abs(pos[None] - pos[:, None])
    growth = np.log(np.maximum(distance, single) / single) / math.log(FARTHEST / single)
    steps = np.floor((half - single) * growth + 1e-9)  # exact powers must not be rounded down
    large = np.minimum(single + steps, half - 1)
    bucket = np.where(distance < single, distance, large)
    after = np.where(pos[None] > pos[:, None], half, 0)
    return np.asarray(bucket + after, np.int32)


class SelfAttention(keras.layers.Layer):
    """Computes multi-head attention within each window, before the output projection.

    ``qkv``, query, key and value side by side, is ``[B * L, 3 * heads * size]``, the result
    ``[B * L, heads * size]``. Only the length of ``ids``, ``[B, L]``, is used. The biases are added
    to the scores, each broadcast to ``[B, heads, L, L]``.
    """

    def __init__(self, heads: int, dropout: float, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = heads
        self.dropout = keras.layers.Dropout(dropout, seed=seed) if dropout else None

    def call(self, qkv: Any, ids: Any, biases: Sequence[Any] = (), training: bool = False) -> Any:
        length, width = ops.shape(ids)[1], qkv.shape[-1] // 3
        size = width // self.heads
        query, key, value = (  # the gradient of a slice, unlike a split's, pads with zeros
            ops.reshape(x, (-1, length, self.heads, size)) for x in ops.split(qkv, 3, axis=-1)
        )
        query = ops.transpose(query * size**-0.5, (0, 2, 1, 3))
        scores = ops.matmul(query, ops.transpose(key, (0, 2, 3, 1)))
        for bias in biases:
            scores = scores + bias
        weights = ops.softmax(scores, axis=-1)
        if self.dropout:
            weights = self.dropout(weights, training=training)
        mixed = ops.matmul(weights, ops.transpose(value, (0, 2, 1, 3)))
        return ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, width))

    def compute_output_shape(self, qkv_shape: Any, ids_shape: Any, biases_shape: Any = None) -> Any:
        return None, qkv_shape[-1] // 3


@dataclass(frozen=True)
class Layers:
    """Creates the layers of a model, or returns existing ones, whose weights are then shared.

    Args:
        dtype: Keras dtype policy of layers that are created without one.
        initializer: Keras initializer of embedding tables and kernels.
        existing: layers by name.
    """

    dtype: Any
    initializer: Any
    existing: dict[str, Any] = field(default_factory=dict)

    def __call__(self, kind: type[keras.layers.Layer], name: str, *args: Any, **kwargs: Any) -> Any:
        if name not in self.existing:
            self.existing[name] = kind(*args, name=name, **{"dtype": self.dtype, **kwargs})
        return self.existing[name]

    def dense(self, units: int, name: str, **kwargs: Any) -> Any:
        return self(keras.layers.Dense, name, units, kernel_initializer=self.initializer, **kwargs)


def encoder(
    config: ModelConfig,
    inputs: dict[str, Any],
    layer: Layers,
    dropout: float = 0.0,
    seed: int = 0,
    full: bool = False,
    texts: Any = None,
) -> Any:
    """Connects the layers of the encoder.

    Args:
        inputs: symbolic ``input_ids``, ``input_mask`` and ``segment_ids``, each int ``[B, L]``.
        dropout: rate of the dropout layers; there are none if it is 0.
        full: whether no window has padding, so that attention needs no mask.
        texts: symbolic numbers of texts, int ``[B, L]``, of which each is encoded by itself;
            padding has a number of its own. By default all of a window is one text.

    Returns:
        ``[B * L, hidden]`` in the compute dtype.
    """

    def norm(name: str, x: Any) -> Any:
        return layer(LayerNorm, name, config.layer_norm_eps)(x)

    def drop(x: Any, offset: int) -> Any:
        if not dropout:
            return x
        return layer(keras.layers.Dropout, f"dropout_{offset}", dropout, seed=seed + offset)(x)

    def add(name: str, *x: Any) -> Any:
        return layer(keras.layers.Add, name)(list(x))

    ids, places = inputs["input_ids"], [inputs["segment_ids"]]
    if texts is not None:
        biases = [layer(TextBias, "text_bias")(texts)]
        places.append(layer(TextPositions, "text_positions", config.positions)(texts))
    else:
        biases = [] if full else [layer(MaskBias, "mask_bias")(inputs["input_mask"])]
    if config.relative_attention_num_buckets:
        biases.append(layer(RelativeBias, "relative_bias", config, layer.initializer)(ids))
    x = layer(Embeddings, "embeddings", config, layer.initializer)(ids, *places)
    x = drop(norm("embeddings_norm", x), 1)
    if config.embedding_size:
        x = layer.dense(config.hidden_size, "embeddings_projection")(x)
    heads, activation = config.num_attention_heads, ACTIVATIONS[config.hidden_act]
    for i in range(config.num_hidden_layers):
        number = config.layer_set(i)
        name = f"layer_{number}"
        qkv = layer.dense(3 * config.attention_width, f"{name}_qkv")(x)
        attention = layer(
            SelfAttention, f"{name}_attention", heads, dropout, seed + 10 * number + 5
        )
        attended = layer.dense(config.hidden_size, f"{name}_attention_output")(
            attention(qkv, ids, biases)
        )
        x = add(f"{name}_attention_add", x, drop(attended, 10 * i + 6))
        x = norm(f"{name}_attention_norm", x)
        inner = layer.dense(
            config.intermediate_size, f"{name}_intermediate", activation=activation
        )(x)
        hidden = layer.dense(config.hidden_size, f"{name}_output")(inner)
        x = norm(f"{name}_output_norm", add(f"{name}_output_add", x, drop(hidden, 10 * i + 7)))
    return x
