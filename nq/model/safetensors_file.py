"""Weights in safetensors files: tensors are read one by one and written whole.

A tensor in 8 bits has scales beside it (``nq.model.quantize``). Weights are one file; those of
others may be several (shards) with an index, as ``transformers`` names them. A file is opened for
every read, because the pages of a mapped file count as memory until it is closed.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from nq.errors import check_argument
from nq.model.names import Layout, Shape
from nq.model.quantize import COLUMN_SCALE, SCALE, Array, decode
from nq.model.tensors import CheckpointTensors
from nq.storage import atomic_write

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
FLOATS = ("F64", "F32", "F16", "BF16")
DTYPES = (*FLOATS, "I64", "I32", "I16", "I8", "U8", "BOOL")


def read(files: Sequence[Path], layout: Layout) -> CheckpointTensors:
    """Returns the tensors of one or several files, by canonical name."""
    stored: dict[str, tuple[Path, str, Shape]] = {}
    for path in files:
        size = int(np.fromfile(path, "<u8", 1).sum())  # 0 of an empty file
        limit = "at most 4 MiB, which are parsed for each tensor: copy or download it again"
        check_argument(size <= 4 << 20, f"{path} is damaged: its header", size, limit)
        with _open(path) as file:
            for name in file.keys():  # noqa: SIM118 - a file is no mapping
                tensor = file.get_slice(name)
                if name in stored:
                    raise ValueError(f"{path} and {stored[name][0]} both hold {name}")
                stored[name] = path, tensor.get_dtype(), tuple(tensor.get_shape())
    stored_names: dict[str, str] = {}
    for name, (path, dtype, shape) in sorted(stored.items()):
        if any(name.endswith(s) and name.removesuffix(s) in stored for s in (SCALE, COLUMN_SCALE)):
            continue
        known = f"one of {', '.join(DTYPES)}"
        check_argument(dtype in DTYPES, f"{path}: the type of {name}", dtype, known)
        if dtype == "I8" and name + SCALE not in stored:
            raise ValueError(f"{path} is damaged: {name} has 8 bits but no {name}{SCALE}")
        for suffix, expected in ((SCALE, (*shape[:1], 1)), (COLUMN_SCALE, (1, *shape[1:]))):
            other, scale_dtype, scale_shape = stored.get(name + suffix, (path, "F32", expected))
            if scale_shape != expected or scale_dtype not in FLOATS:
                raise ValueError(
                    f"{other} is damaged: {name} has shape {shape}, {name}{suffix} {scale_shape} "
                    f"of {scale_dtype}; expected {expected} of {', '.join(FLOATS)}"
                )
        canonical = layout.canonical(name)
        if canonical in stored_names:
            raise ValueError(f"{path} holds {canonical} under two names")
        stored_names[canonical] = name

    def read_stored(name: str) -> Any:
        with _open(stored[name][0]) as file:
            return file.get_tensor(name)

    def read_tensor(canonical: str) -> Any:
        name = stored_names[canonical]
        scales = [name + suffix for suffix in (SCALE, COLUMN_SCALE) if name + suffix in stored]
        value, *factors = map(read_stored, (name, *scales))
        try:
            return decode(value, *factors)
        except ValueError as error:
            raise ValueError(
                f"{stored[name][0]} is damaged: {name}: {error}; copy or download it again"
            ) from error

    shapes = {canonical: stored[name][2] for canonical, name in stored_names.items()}
    return CheckpointTensors(layout, shapes, read_tensor)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        with safe_open(str(path), framework="numpy") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: {error}; copy or download it again") from error


def write(folder: Path, tensors: Mapping[str, Array]) -> None:
    """Writes the tensors of a folder, by name; ``transformers`` reads those that have no scales."""
    with atomic_write(folder / WEIGHTS) as file:
        mode = Path(file.name).stat().st_mode  # the library lets only the owner read its file
        save_file(dict(tensors), file.name, metadata={"format": "pt"})  # transformers requires it
        Path(file.name).chmod(mode)
