"""Weights in safetensors files: tensors are read one by one, or by rows, and written whole.

A tensor in 8 bits has a companion ``NAME.scale`` with one float32 factor per row. A file is opened
for every read, because the pages of a mapped file count as memory until it is closed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from nq.files import atomic_write
from nq.model.names import Layout
from nq.model.tensors import CheckpointTensors
from nq.records import FloatArray

SCALE = ".scale"
DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL")


def read(files: Sequence[Path], layout: Layout) -> CheckpointTensors:
    """Returns the tensors of one or several files, by canonical name.

    Raises:
        ValueError: a file is damaged, or two tensors have the same name.
    """
    stored: dict[str, tuple[Path, str, tuple[int, ...]]] = {}
    for path in files:
        with _open(path) as file:
            for name in file.keys():  # noqa: SIM118 - a file is no mapping
                tensor = file.get_slice(name)
                if name in stored:
                    raise ValueError(f"{path} and {stored[name][0]} both hold {name}")
                stored[name] = path, tensor.get_dtype(), tuple(tensor.get_shape())
    stored_names: dict[str, str] = {}
    for name, (path, dtype, shape) in sorted(stored.items()):
        if name.endswith(SCALE) and name.removesuffix(SCALE) in stored:
            continue
        if dtype not in DTYPES:
            raise ValueError(
                f"{path}: {name} is stored as {dtype}; expected one of {', '.join(DTYPES)}"
            )
        _, scale_dtype, scale_shape = stored.get(name + SCALE, (path, "", ()))
        if dtype == "I8" and not scale_dtype:
            raise ValueError(f"{path} is damaged: {name} has 8 bits but no {name}{SCALE}")
        if scale_dtype and scale_shape != (*shape[:1], 1):
            raise ValueError(
                f"{path} is damaged: {name} has shape {shape}, {name}{SCALE} {scale_shape}; "
                f"expected one factor per row"
            )
        canonical = layout.canonical(name)
        if canonical in stored_names:
            raise ValueError(f"{path} holds {canonical} under two names")
        stored_names[canonical] = name

    def read_tensor(canonical: str, rows: slice = slice(None)) -> Any:
        name = stored_names[canonical]
        with _open(stored[name][0]) as file:
            value = file.get_slice(name)[rows] if stored[name][2] else file.get_tensor(name)
            if name + SCALE in stored:
                value = value.astype(np.float32) * file.get_slice(name + SCALE)[rows]
        return value

    shapes = {canonical: stored[name][2] for canonical, name in stored_names.items()}
    return CheckpointTensors(layout, shapes, read_tensor, by_rows=True)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        with safe_open(str(path), framework="numpy") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(
            f"{path} is damaged: {error}; expected {path.stat().st_size} bytes to be a whole "
            "safetensors file: copy or download it again"
        ) from error


def write(path: Path, tensors: Mapping[str, FloatArray], compact: bool = False) -> None:
    """Writes a file; ``transformers`` reads it too if it is not compact.

    Args:
        path: the file.
        tensors: float32 tensors, by name.
        compact: whether word embeddings are stored in 8 bits and everything else in float16.
    """
    stored: dict[str, np.ndarray[Any, Any]] = {}
    for name, value in tensors.items():
        if compact and name.endswith("word_embeddings.weight"):
            scale = np.abs(value).max(axis=1, keepdims=True) / 127 + 1e-12
            stored[name] = np.rint(value / scale).astype(np.int8)
            stored[name + SCALE] = scale.astype(np.float32)
        else:
            stored[name] = value.astype(np.float16) if compact else value
    with atomic_write(path) as file:
        save_file(stored, file.name, metadata={"format": "pt"})  # transformers requires the format
        Path(file.name).chmod(0o644)  # the library creates files that only their owner can read
