"""Weights in safetensors files: tensors are read one by one, or by rows, and written whole.

A tensor in 8 bits has a companion ``NAME.scale`` with one float32 factor per row. Files are read,
not memory-mapped: the pages of a mapped file would count as memory until all is loaded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from nq.files import atomic_write
from nq.model.names import Layout
from nq.model.tensors import CheckpointTensors
from nq.records import FloatArray

SCALE = ".scale"
DTYPES: dict[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


@dataclass(frozen=True)
class StoredTensor:
    """The position of a tensor in a file.

    Args:
        file: a safetensors file.
        dtype: type of the elements.
        shape: shape of the tensor.
        start: offset of the first element in bytes.
    """

    file: Path
    dtype: Any
    shape: tuple[int, ...]
    start: int

    def read(self, rows: slice | None = None) -> Any:
        """Reads the tensor, or the given rows of it.

        Raises:
            ValueError: the file ends before the tensor does.
        """
        shape = (rows.stop - rows.start, *self.shape[1:]) if rows else self.shape
        row_bytes = math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize
        with self.file.open("rb") as file:
            file.seek(self.start + (rows.start * row_bytes if rows else 0))
            value = np.fromfile(file, self.dtype, math.prod(shape))
        if len(value) < math.prod(shape):
            raise ValueError(f"{self.file} is damaged: it ends too early")
        return value.reshape(shape)


def read(files: Sequence[Path], layout: Layout) -> CheckpointTensors:
    """Returns the tensors of one or several files, by canonical name.

    Raises:
        ValueError: a file is damaged, or two tensors have the same name.
    """
    stored: dict[str, StoredTensor] = {}
    for path in files:
        for name, tensor in _header(path).items():
            if name in stored:
                raise ValueError(f"{path} and {stored[name].file} both hold {name}")
            stored[name] = tensor
    stored_names: dict[str, str] = {}
    for name, tensor in sorted(stored.items()):
        if name.endswith(SCALE) and name.removesuffix(SCALE) in stored:
            continue
        if tensor.dtype is np.int8 and name + SCALE not in stored:
            raise ValueError(f"{tensor.file} is damaged: {name} has 8 bits but no {name}{SCALE}")
        canonical = layout.canonical(name)
        if canonical in stored_names:
            raise ValueError(f"{tensor.file} holds {canonical} under two names")
        stored_names[canonical] = name

    def read_tensor(canonical: str, rows: slice | None = None) -> Any:
        name = stored_names[canonical]
        value = stored[name].read(rows)
        scale = stored.get(name + SCALE)
        return value.astype(np.float32) * scale.read(rows) if scale else value

    shapes = {canonical: stored[name].shape for canonical, name in stored_names.items()}
    return CheckpointTensors(layout, shapes, read_tensor, read_tensor)


def _header(path: Path) -> dict[str, StoredTensor]:
    """Returns the tensors that a file lists, after the library has checked the file's length."""
    try:
        with safe_open(str(path), framework="numpy"):
            pass
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
    except (SafetensorError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged: {error}; expected {path.stat().st_size} bytes to be a whole "
            "safetensors file: copy or download it again"
        ) from error
    header.pop("__metadata__", None)
    tensors: dict[str, StoredTensor] = {}
    for name, value in header.items():
        if value["dtype"] not in DTYPES:
            raise ValueError(
                f"{path}: {name} is stored as {value['dtype']}; expected one of {', '.join(DTYPES)}"
            )
        start = 8 + size + value["data_offsets"][0]
        tensors[name] = StoredTensor(path, DTYPES[value["dtype"]], tuple(value["shape"]), start)
    return tensors


def write(path: Path, tensors: Mapping[str, FloatArray], compact: bool = False) -> None:
    """Writes a file that ``transformers`` reads too if it is not compact.

    Args:
        path: the file.
        tensors: float32 tensors, by name.
        compact: whether word embeddings are stored in 8 bits and everything else in float16.
    """
    stored = _compact(tensors) if compact else dict(tensors)
    with atomic_write(path) as file:
        save_file(stored, file.name, metadata={"format": "pt"})  # transformers requires the format
        Path(file.name).chmod(0o644)  # the library creates files that only their owner can read


def _compact(tensors: Mapping[str, FloatArray]) -> dict[str, np.ndarray[Any, Any]]:
    compact: dict[str, np.ndarray[Any, Any]] = {}
    for name, value in tensors.items():
        if name.endswith("word_embeddings.weight"):
            scale = np.abs(value).max(axis=1, keepdims=True) / 127 + 1e-12
            compact[name] = np.rint(value / scale).astype(np.int8)
            compact[name + SCALE] = scale.astype(np.float32)
        else:
            compact[name] = value.astype(np.float16)
    return compact
