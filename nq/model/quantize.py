"""Weights in 8 bits: integers from -127 to 127, times a scale of their row and one of their column.

A row is an output channel of a linear layer, as Hugging Face stores it, or an embedding. Its scale
is the largest absolute value over 127. A smaller one, which clips that value, does not lower the
squared error of trained weights.

A column is an input channel, or a dimension of the embeddings. Its scale, by which the values are
divided first, is their root mean square: some columns of trained weights are many times larger than
others, and would leave these only a few of the 255 integers. The kind of storage ``compact`` has no
scales of columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nq.model.shapes import WORD_EMBEDDINGS
from nq.records import FloatArray

SCALE, COLUMN_SCALE = ".scale", ".column_scale"
"""End the names of a tensor's scales, ``[rows, 1]`` and ``[1, columns]`` of float32."""
LARGEST = 127
TINY = 1e-12
HEADS = ("span_output", "type_output")

Array = np.ndarray[Any, Any]


def in_8_bits(path: str, store: str) -> bool:
    """Returns whether a weight has 8 bits in a kind of storage (``nq.config.STORES``).

    The tables of positions are small and have outliers; heads are small and decide the answer.

    >>> in_8_bits("layer_0_qkv/kernel", "int8"), in_8_bits("layer_0_qkv/kernel", "compact")
    (True, False)
    """
    if path == WORD_EMBEDDINGS:
        return store in ("compact", "int8")
    return store == "int8" and path.endswith("/kernel") and not path.startswith(HEADS)


def encode(name: str, value: FloatArray, path: str, store: str) -> Mapping[str, Array]:
    """Returns a tensor as it is stored: by name, with its scales if it has 8 bits.

    Args:
        name: of the tensor.
        value: float32, an output channel or an embedding in each row.
        path: of the weight that the tensor fills.
        store: kind of storage.

    Raises:
        ValueError: a value is not finite, or beyond the range of the type.
    """
    if in_8_bits(path, store):
        stored = _in_8_bits(name, value, by_columns=store == "int8")
    elif store in ("float32", "int8"):
        return {name: value}
    else:
        with np.errstate(over="ignore"):
            stored = {name: value.astype(np.float16)}
    if not all(np.isfinite(values).all() for values in stored.values()):
        raise ValueError(
            f"{name} has values that are not finite, or too large for {store}: store the weights "
            "as float32"
        )
    return stored


@np.errstate(over="ignore", invalid="ignore")  # the caller refuses scales that are not finite
def _in_8_bits(name: str, value: FloatArray, by_columns: bool) -> dict[str, Array]:
    scales: dict[str, Array] = {}
    if by_columns:
        columns = np.sqrt(np.square(value, dtype=np.float64).mean(axis=0, keepdims=True)) + TINY
        scales[name + COLUMN_SCALE] = columns.astype(np.float32)
        value = value / scales[name + COLUMN_SCALE]
    rows = np.abs(value).max(axis=1, keepdims=True) / LARGEST + TINY
    integers = np.rint(value / rows).astype(np.int8)
    return {name: integers, name + SCALE: rows.astype(np.float32), **scales}


def decode(value: Array, rows: Array, columns: Array | None) -> FloatArray:
    """Returns rows of a tensor in 8 bits as float32.

    Args:
        value: int8 ``[rows, columns]``.
        rows: the scales of these rows.
        columns: the scales of the columns, if there are any.

    Raises:
        ValueError: a scale is negative or not finite.
    """
    values: FloatArray = value.astype(np.float32)
    for scale in (rows, columns):
        if scale is None:
            continue
        if not (np.isfinite(scale) & (scale >= 0)).all():
            raise ValueError("a scale is negative or not finite")
        values = values * scale.astype(np.float32)
    return values
