"""The encoder's attention: scores, masks, and encodings of positions.

Each layer gets its dtype policy as an argument. What only the length of the windows determines is
one layer for the whole encoder, whose result an engine computes once for each shape.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import ml_dtypes
import numpy as np
from keras import ops

from nq.model.config import ModelConfig
from nq.records import IntArray

FARTHEST = 128  # pieces, beyond which all distances share a bucket, in T5 and MPNet


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


class RelativeBias(keras.layers.Layer):
    """Computes an attention bias for each head from the distance between two pieces.

    Only the length of ``ids``, ``[B, L]``, is used. The result is ``[1, heads, L, L]``, with rows
    for queries and columns for keys.
    """

    def __init__(self, config: ModelConfig, initializer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        buckets = config.relative_attention_num_buckets
        self.table_shape = buckets, config.num_attention_heads
        self.initializer = initializer
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
    pos = np.arange(length)
    half = buckets // 2
    single = half // 2
    ahead = pos[None] - pos[:, None]
    distance = np.abs(ahead)
    growth = np.log(np.maximum(distance, single) / single) / math.log(FARTHEST / single)
    steps = np.floor((half - single) * growth + 1e-9)  # exact powers must not be rounded down
    large = np.minimum(single + steps, half - 1)
    bucket = np.where(distance < single, distance, large)
    return np.asarray(bucket + half * (ahead > 0), np.int32)


class LocalBias(MaskBias):
    """Computes a bias ``[1, 1, L, L]`` that masks what is farther away than ``reach`` pieces.

    Only the length of ``ids``, ``[B, L]``, is used.
    """

    def __init__(self, reach: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reach = reach

    def call(self, ids: Any) -> Any:
        pos = ops.arange(ops.shape(ids)[1])
        return self.bias(ops.abs(pos[:, None] - pos[None]) <= self.reach)[None, None]

    def compute_output_shape(self, shape: Any) -> Any:
        return 1, 1, shape[1], shape[1]


class Rotation(keras.layers.Layer):
    """Computes cosine and sine of the angles by which a position rotates query and key.

    Su et al. 2021, https://arxiv.org/abs/2104.09864. Each is ``[L, 1, size / 2]`` for heads of
    ``size`` columns. Only the length of ``ids``, ``[B, L]``, is used. The angles are constants,
    because an engine that computes in bfloat16 would round them.
    """

    def __init__(self, positions: int, size: int, theta: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        frequencies = 1 / np.float32(theta) ** (np.arange(0, size, 2, dtype=np.float32) / size)
        angles = np.arange(positions, dtype=np.float32)[:, None, None] * frequencies
        self.tables = np.cos(angles), np.sin(angles)

    def call(self, ids: Any) -> Any:
        length = ops.shape(ids)[1]
        return [ops.convert_to_tensor(table, self.compute_dtype)[:length] for table in self.tables]

    def compute_output_shape(self, shape: Any) -> Any:
        return [(shape[1], *table.shape[1:]) for table in self.tables]


def rotate(x: Any, cosine: Any, sine: Any) -> Any:
    """Returns ``[B, L, heads, size]`` rotated, each column of the first half with its second."""
    first, second = ops.split(x, 2, axis=-1)
    turned = [first * cosine - second * sine, second * cosine + first * sine]
    return ops.concatenate(turned, axis=-1)


class RelativeEmbeddings(keras.layers.Layer):
    """Has the embeddings of relative positions ``[2 * span, hidden]``; ``ids`` are ignored."""

    def __init__(self, config: ModelConfig, initializer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shape = 2 * config.relative_span, config.hidden_size
        self.initializer = initializer

    def build(self, shape: Any) -> None:
        self.table = self.add_weight(
            shape=self.shape, initializer=self.initializer, name="table", autocast=False
        )

    def call(self, ids: Any) -> Any:
        return ops.cast(self.table, self.compute_dtype)

    def compute_output_shape(self, shape: Any) -> Any:
        return self.shape


class RelativePlaces(keras.layers.Layer):
    """Computes the indices of pairs of query and key in products with relative positions.

    The products of L queries with R embeddings are ``[L, R]``, those of R embeddings with L keys
    ``[R, L]``. The two results, int ``[L, L]``, have the place of each pair of query and key in
    these, read row by row, so that one gather moves them and nothing is transposed. Only the
    length of ``ids``, ``[B, L]``, is used: an engine computes the places once for each shape.
    """

    def __init__(self, config: ModelConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rows = 2 * config.relative_span
        self.last = config.positions - 1
        self.table = relative_positions(config)

    def call(self, ids: Any) -> Any:
        length = ops.shape(ids)[1]
        pos = ops.arange(length)
        distance = pos[:, None] - pos[None]
        row = ops.take(self.table, distance + self.last)
        return [pos[:, None] * self.rows + row, row * length + pos]

    def compute_output_shape(self, shape: Any) -> Any:
        return [(shape[1], shape[1])] * 2


def relative_positions(config: ModelConfig) -> IntArray:
    """Returns the row of disentangled attention for each distance of a query behind a key.

    Distances are from ``1 - config.positions`` on. Half of the buckets are for keys behind the
    query, and of each half are again half for one distance each; those of the others grow with the
    distance. He et al. 2021, https://arxiv.org/abs/2006.03654, and ``transformers`` in the type.

    >>> config = ModelConfig(relative_attention=True, pos_att_type="c2p", position_buckets=4,
    ...                      max_position_embeddings=8)
    >>> relative_positions(config)
    array([1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7], dtype=int32)
    """
    span = config.relative_span
    position = np.arange(1 - config.positions, config.positions, dtype=np.float32)
    if config.position_buckets > 0:
        single = span // 2
        distance = np.maximum(np.abs(position), single)
        growth = np.log(distance / single) / np.log(np.float32((config.farthest - 1) / single))
        large = np.sign(position) * (np.ceil(growth * (single - 1)) + single)
        position = np.where(distance > single, large, position)
    return np.clip(position + span, 0, 2 * span - 1).astype(np.int32)


class SelfAttention(keras.layers.Layer):
    """Computes multi-head attention within each window, before the output projection.

    ``qkv``, query, key and value side by side, is ``[B * L, 3 * heads * size]``, the result
    ``[B * L, heads * size]``. Only the length of ``ids``, ``[B, L]``, is used. The biases are added
    to the scores, each broadcast to ``[B, heads, L, L]``. ``rotation`` has the results of
    ``Rotation``. ``relative`` has by the names of ``ModelConfig.relative_terms`` projections of
    relative positions ``[R, heads * size]``, and the places of their products of
    ``RelativePlaces``; ``terms`` is how many kinds of products are added besides the usual one.
    """

    def __init__(
        self, heads: int, dropout: float, seed: int, terms: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.heads = heads
        self.products = 1 + terms
        self.dropout = keras.layers.Dropout(dropout, seed=seed) if dropout else None

    def call(
        self,
        qkv: Any,
        ids: Any,
        biases: Sequence[Any] = (),
        rotation: Sequence[Any] = (),
        relative: Mapping[str, Any] | None = None,
        training: bool = False,
    ) -> Any:
        length = ops.shape(ids)[1]
        width = qkv.shape[-1] // 3
        size = width // self.heads
        query, key, value = (  # the gradient of a slice, unlike a split's, pads with zeros
            ops.reshape(x, (-1, length, self.heads, size)) for x in ops.split(qkv, 3, axis=-1)
        )
        if rotation:
            query = rotate(query, *rotation)
            key = rotate(key, *rotation)
        scale = (size * self.products) ** -0.5
        query = ops.transpose(query * scale, (0, 2, 1, 3))
        key = ops.transpose(key, (0, 2, 3, 1))
        scores = ops.matmul(query, key)
        for term, (table, places) in (relative or {}).items():
            rows = table.shape[0]
            positions = ops.reshape(table, (1, rows, self.heads, size))
            if term == "c2p":
                products = ops.matmul(query, ops.transpose(positions, (0, 2, 3, 1)))
            else:
                products = ops.matmul(ops.transpose(positions * scale, (0, 2, 1, 3)), key)
            products = ops.reshape(products, (-1, self.heads, length * rows))
            scores = scores + ops.take(products, places, axis=-1)
        for bias in biases:
            scores = scores + bias
        weights = ops.softmax(scores, axis=-1)
        if self.dropout:
            weights = self.dropout(weights, training=training)
        mixed = ops.matmul(weights, ops.transpose(value, (0, 2, 1, 3)))
        return ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, width))

    def compute_output_shape(self, qkv_shape: Any) -> Any:
        return None, qkv_shape[-1] // 3
