"""The files of weights: safetensors, also in 8 bits, and TensorFlow checkpoints.

Tensors are read one by one. Weights in safetensors are one file; those of others may be several
(shards) with an index, as ``transformers`` names them. A file is opened for every read, because the
pages of a mapped file count as memory until it is closed.

A tensor in 8 bits has integers from -127 to 127, times a scale of their row and one of their
column. A row is an output channel of a linear layer, as Hugging Face stores it, or an embedding.
Its scale is the largest absolute value over 127; a smaller one does not lower the squared error. A
column is an input channel, or a dimension of the embeddings. Its scale, by which the values are
divided first, is their root mean square: some columns of trained weights are many times larger than
others, and would leave these only a few of the 255 integers.

A TensorFlow checkpoint NAME is the file NAME.index with one or several files NAME.data-…, in
Google's format of TensorFlow 1 or with the object graph of the 2020 port.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from nq.errors import check_argument
from nq.formats.lines import POINTER_BYTES, check_whole
from nq.model import names
from nq.model.names import ANSWER_HEADS, WORD_EMBEDDINGS, Layout, TensorShape
from nq.model.runtime import import_tensorflow
from nq.model.tensors import CheckpointTensors
from nq.records import FloatArray
from nq.storage import atomic_write

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLOATS = ("F64", "F32", "F16", "BF16")
DTYPES = (*FLOATS, "I64", "I32", "I16", "I8", "U8", "BOOL")
SCALE = ".scale"
COLUMN_SCALE = ".column_scale"
"""End the names of a tensor's scales, ``[rows, 1]`` and ``[1, columns]`` of float32."""
LARGEST = 127
TINY = 1e-12
Array = np.ndarray[Any, Any]
PREFERRED = ("bert_joint.ckpt", "model_cpkt-1")
_IGNORED = re.compile(
    r"_CHECKPOINTABLE_OBJECT_GRAPH|save_counter|\.OPTIMIZER_SLOT|^optimizer/|^global_step$"
    r"|/adam_[mv]$"
)
_PORT_MODULE = re.compile(r"(embedding_lookup|embedding_postprocessor|encoder|pooler_transform)/.*")


def read_safetensors(files: Sequence[Path], layout: Layout) -> CheckpointTensors:
    """Returns the tensors of one or several files, by canonical name."""
    stored: dict[str, tuple[Path, str, TensorShape]] = {}
    for path in files:
        with open(path, "rb") as start:
            head = start.read(POINTER_BYTES)
        check_whole(path, head)
        size = int.from_bytes(head[:8], "little")
        limit = "at most 4 MiB, which are parsed for each tensor: copy or download it again"
        check_argument(size <= 4 << 20, f"{path} is damaged: its header", size, limit)
        with _open(path) as file:
            for name in file.keys():  # noqa: SIM118 - a file is no mapping
                tensor = file.get_slice(name)
                if name in stored:
                    raise ValueError(f"{path} and {stored[name][0]} both hold {name}")
                stored[name] = path, tensor.get_dtype(), tuple(tensor.get_shape())
    stored_names: dict[str, str] = {}
    of_scales = {name + suffix for name in stored for suffix in (SCALE, COLUMN_SCALE)}
    for name, (path, dtype, shape) in sorted(stored.items()):
        if name in of_scales:
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

    def read_tensor(canonical: str) -> FloatArray:
        name = stored_names[canonical]
        scales = [name + suffix for suffix in (SCALE, COLUMN_SCALE) if name + suffix in stored]
        value, *factors = map(read_stored, (name, *scales))
        try:
            return decode(value, *factors)
        except ValueError as error:
            raise ValueError(
                f"{stored[name][0]} is damaged: {name}: {error}; copy, download or train it again"
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


def write_safetensors(folder: Path, tensors: Mapping[str, Array]) -> None:
    """Writes the tensors of a folder, by name; ``transformers`` reads those that have no scales."""
    with atomic_write(folder / WEIGHTS) as file:
        mode = Path(file.name).stat().st_mode  # the library lets only the owner read its file
        save_file(dict(tensors), file.name, metadata={"format": "pt"})  # transformers requires it
        Path(file.name).chmod(mode)


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


@np.errstate(over="ignore", invalid="ignore")
def decode(value: Array, *scales: Array) -> FloatArray:
    """Returns a tensor times its scales, as float32; ``ValueError`` if a value is not finite."""
    values: FloatArray = value.astype(np.float32, copy=bool(scales))
    for scale in scales:
        if (scale < 0).any():
            raise ValueError("a scale is negative")
        values *= scale.astype(np.float32)
    if not np.isfinite(values).all():
        raise ValueError("some of its values are not finite")
    return values


def find_tensorflow(folder: Path) -> Path | None:
    """Returns the path of a folder's checkpoint without suffix, ``None`` if it has none."""
    checkpoints = sorted(path.name.removesuffix(".index") for path in folder.glob("*.index"))
    preferred = [name for name in PREFERRED if name in checkpoints]
    if not preferred and len(checkpoints) > 1:
        raise ValueError(f"{folder} holds the checkpoints {', '.join(checkpoints)}: keep one")
    return next((folder / name for name in (*preferred, *checkpoints)), None)


def read_tensorflow(prefix: Path) -> CheckpointTensors:
    """Returns the tensors of a checkpoint; its keys tell which of the two formats it has."""
    tf = import_tensorflow()
    errors = (tf.errors.OpError, LookupError, ValueError, RuntimeError, TypeError)
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        stored = reader.get_variable_to_shape_map()
    except errors as error:
        raise _damaged(prefix, error) from error
    is_object_graph = any("CHECKPOINTABLE_OBJECT_GRAPH" in name for name in stored)
    shapes: dict[str, TensorShape] = {}
    stored_names: dict[str, str] = {}
    for stored_name, dimensions in stored.items():
        if _IGNORED.search(stored_name):
            continue
        shape = tuple(dimensions)
        name = _port_name(stored_name, shape) if is_object_graph else stored_name
        if name in shapes:
            raise ValueError(f"{prefix} holds two models; expected the one that `mk_model` makes")
        shapes[name] = shape
        stored_names[name] = stored_name

    def read_tensor(name: str) -> FloatArray:
        try:
            return decode(reader.get_tensor(stored_names[name]))
        except errors as error:
            raise _damaged(f"{prefix}: {name}", error) from error

    return CheckpointTensors(names.TF2 if is_object_graph else names.TF1, shapes, read_tensor)


def _port_name(name: str, shape: TensorShape) -> str:
    """Returns a name of the object graph without the path to the encoder or the head.

    The graph names the heads by number only; their kernels and biases have 2 and 5 rows.

    >>> _port_name("model/layer_with_weights-2/bias/.ATTRIBUTES/VARIABLE_VALUE", (5,))
    'ans_type/bias'
    """
    name = name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")
    module = _PORT_MODULE.search(name)
    if module:
        return module.group()
    head = {2: "logits", 5: "ans_type"}.get(shape[0]) if shape else None
    return f"{head}/{name.rsplit('/', 1)[-1]}" if head else name


def _damaged(what: Path | str, error: Exception) -> ValueError:
    cause = (str(error).strip() or type(error).__name__).splitlines()[0]
    return ValueError(f"{what} is damaged: {cause}")
