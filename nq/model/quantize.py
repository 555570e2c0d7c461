"""Weights in 8 bits: integers from -127 to 127, times a scale of their row and one of their column.

A row is an output channel of a linear layer, as Hugging Face stores it, or an embedding. Its scale
is the largest absolute value over 127; a smaller one does not lower the squared error.

A column is an input channel, or a dimension of the embeddings. Its scale, by which the values are
divided first, is their root mean square: some columns of trained weights are many times larger than
others, and would leave these only a few of the 255 integers.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nq.model.names import ANSWER_HEADS, WORD_EMBEDDINGS
from nq.records import FloatArray

SCALE, COLUMN_SCALE = ".scale", ".column_scale"
"""End the names of a tensor's scales, ``[rows, 1]`` and ``[1, columns]`` of float32."""
LARGEST = 127
TINY = 1e-12

Array = np.ndarray[Any, Any]


def in_8_bits(path: str) -> bool:
    """Returns whether the storage ``int8`` has a weight in 8 bits.

    The tables of positions are small and have outliers; heads are small and decide the answer.

    >>> in_8_bits("layer_0_qkv/kernel"), in_8_bits("span_output/kernel")
    (True, False)
    """
    is_kernel = path.endswith("/kernel") and not path.startswith(ANSWER_HEADS)
    return is_kernel or path == WORD_EMBEDDINGS


@np.errstate(over="ignore", invalid="ignore")  # values that are not finite are refused
def encode(name: str, value: FloatArray, path: str, store: str) -> Mapping[str, Array]:
    """Returns a tensor as it is stored: by name, with its scales if it has 8 bits.

    ``value`` is float32; ``path`` is that of the weight that the tensor fills.
    """
    if store == "float16":
        stored: dict[str, Array] = {name: value.astype(np.float16)}
    elif store == "int8" and in_8_bits(path):
        columns = np.sqrt(np.square(value, dtype=np.float64).mean(axis=0, keepdims=True)) + TINY
        columns = columns.astype(np.float32)
        value = value / columns
        rows = np.abs(value).max(axis=1, keepdims=True) / LARGEST + TINY
        stored = {
            name: np.rint(value / rows).astype(np.int8),
            name + SCALE: rows.astype(np.float32),
            name + COLUMN_SCALE: columns,
        }
    else:
        return {name: value}
    if not all(np.isfinite(values).all() for values in stored.values()):
        raise ValueError(f"{name} is not finite, or too large for {store}: store it as float32")
    return stored


def decode(value: Array, *scales: Array) -> FloatArray:
    """Returns a tensor times its scales, as float32."""
    values: FloatArray = value.astype(np.float32, copy=bool(scales))
    for scale in scales:
        if not (np.isfinite(scale) & (scale >= 0)).all():
            raise ValueError("a scale is negative or not finite")
        values *= scale.astype(np.float32)
    return values
