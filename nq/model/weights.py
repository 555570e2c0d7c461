"""Tensors of a checkpoint, found by looking at the folder and read one by one.

Four kinds of folder hold weights: one ``model.safetensors``, several of them with an index,
a TensorFlow 1 checkpoint in Google's names, and an object-based TensorFlow 2 checkpoint in
those of the 2020 port. No pickle is ever loaded.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from nq.config import ModelConfig
from nq.model import names
from nq.model.names import Layout, Table
from nq.records import FloatArray

CONFIG, TF_CONFIG = "config.json", "bert_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SCALE = ".scale"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
CONVERT_PICKLE = (
    "convert it where you trust it and have transformers: python -c 'import sys; from "
    "transformers import AutoModelForQuestionAnswering as M; "
    "M.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])' FOLDER NEW_FOLDER"
)
CHUNK_BYTES = 16 << 20
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
TF_PREFERRED = ("bert_joint.ckpt", "model_cpkt-1")
_TF_IGNORED = re.compile(
    r"_CHECKPOINTABLE_OBJECT_GRAPH|save_counter|\.OPTIMIZER_SLOT|^optimizer/|^global_step$"
    r"|/adam_[mv]$"
)
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_PORT_PART = re.compile(r"(embedding_lookup|embedding_postprocessor|encoder|pooler_transform)/.*")


HEADS = ("pooler", "span_output", "type_output")


def _one_layer_more(config: ModelConfig) -> ModelConfig:
    groups = config.num_hidden_groups
    return dataclasses.replace(
        config,
        num_hidden_layers=config.num_hidden_layers + 1,
        num_hidden_groups=groups + 1 if groups else 0,
    )


class Weights(Mapping[str, FloatArray]):
    """The tensors of a checkpoint in float32, each read when it is asked for.

    Args:
        layout: how they are named.
        shapes: of all of them, by name.
        read: reads one, by its name.
        read_rows: reads some rows of one, where the file allows it.
    """

    def __init__(
        self,
        layout: Layout,
        shapes: Mapping[str, tuple[int, ...]],
        read: Callable[[str], Any],
        read_rows: Callable[[str, slice], Any] | None = None,
    ) -> None:
        self.layout, self.shapes = layout, dict(shapes)
        self._read, self._read_rows = read, read_rows

    def table(self, config: ModelConfig) -> Table:
        """Which of them fill each weight of a model of that shape.

        Raises:
            ValueError: tensors of the encoder are missing, or there are more layers.
        """
        table = names.table(config, self.layout)
        encoder = [
            part.name
            for path, parts in table.items()
            if not path.startswith(HEADS)
            for part in parts
        ]
        missing = [name for name in encoder if name not in self]
        if missing:
            raise ValueError(
                f"the checkpoint lacks {len(missing)} of the {len(encoder)} tensors of the encoder "
                f"that {CONFIG} describes, such as {missing[0]}: it holds "
                f"{', '.join(sorted(self)[:3])} …; weights and config do not belong together"
            )
        beyond = names.table(_one_layer_more(config), self.layout).values()
        known = {part.name for parts in table.values() for part in parts}
        more = [p.name for parts in beyond for p in parts if p.name in self.shapes.keys() - known]
        if more:
            raise ValueError(
                f"the checkpoint holds {more[0]}, of a layer beyond the {config.layer_sets} that "
                f"{CONFIG} describes; weights and config do not belong together"
            )
        return table

    def __getitem__(self, name: str) -> FloatArray:
        if name not in self.shapes:
            raise KeyError(name)
        value: FloatArray = np.asarray(self._read(name)).astype(np.float32, copy=False)
        return value

    def chunks(self, name: str) -> Iterator[tuple[int, FloatArray]]:
        """A large tensor by blocks of rows, each with the number of its first."""
        if not self._read_rows:
            yield 0, self[name]
            return
        rows, *rest = self.shapes[name]
        step = max(1, CHUNK_BYTES // (4 * int(np.prod(rest))))
        for first in range(0, rows, step):
            block = self._read_rows(name, slice(first, min(first + step, rows)))
            yield first, np.asarray(block).astype(np.float32, copy=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __contains__(self, name: object) -> bool:
        return name in self.shapes


def weight_files(folder: str | Path) -> list[Path]:
    """The files that hold a folder's weights, in an order that depends on nothing else.

    Raises:
        FileNotFoundError: there are none, or one that belongs to them is missing.
        ValueError: only a pickle, or TensorFlow checkpoints of which none is the obvious one.
    """
    path = Path(folder)
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    if (path / INDEX).is_file():
        return _shards(path)
    prefix = tf_prefix(path)
    if prefix:
        files = sorted(path.glob(f"{prefix.name}.data-*"))
        if not files:
            raise FileNotFoundError(
                f"{prefix}.index is there but no {prefix.name}.data-…: a TensorFlow checkpoint "
                "is both; copy the missing file"
            )
        return [Path(f"{prefix}.index"), *files]
    found = next((name for name in PICKLES if (path / name).is_file()), None)
    if found:
        raise ValueError(f"{path / found} is a pickle, which is never loaded: {CONVERT_PICKLE}")
    raise FileNotFoundError(
        f"no {WEIGHTS} in {folder}: weights are read from safetensors only, or from a "
        "TensorFlow checkpoint (NAME.index and NAME.data-…)"
    )


def tf_prefix(folder: Path) -> Path | None:
    """The TensorFlow checkpoint of a folder without its suffix, ``None`` where there is none.

    Raises:
        ValueError: there are several, none with a name that is known.
    """
    found = sorted(path.name.removesuffix(".index") for path in folder.glob("*.index"))
    known = [name for name in TF_PREFERRED if name in found]
    if not known and len(found) > 1:
        raise ValueError(
            f"{folder} holds the checkpoints {', '.join(found)}: expected one of them; move the "
            "others away"
        )
    chosen = [*known, *found][:1]
    return folder / chosen[0] if chosen else None


def read_tensors(folder: str | Path, layout: Layout = names.BERT) -> Weights:
    """The tensors of a folder's weights, by canonical name.

    Args:
        folder: any folder that ``weight_files`` knows.
        layout: how tensors of safetensors files are named.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or a pickle.
    """
    files = weight_files(folder)
    if files[0].suffix == ".index":
        return _tensorflow(files[0].with_suffix(""))
    return _safetensors(files, layout)


# --- safetensors


@dataclass(frozen=True)
class _Stored:
    """Where a tensor lies."""

    file: Path
    dtype: Any
    shape: tuple[int, ...]
    start: int

    def read(self, rows: slice | None = None) -> Any:
        """The tensor, or some of its rows."""
        # read, not mapped: pages of a mapped file would count as memory until all is loaded
        first, last = (rows.start, rows.stop) if rows else (0, self.shape[0] if self.shape else 1)
        width = int(np.prod(self.shape[1:]))
        count = (last - first) * width
        with self.file.open("rb") as file:
            file.seek(self.start + first * width * np.dtype(self.dtype).itemsize)
            value = np.fromfile(file, self.dtype, count)
        if len(value) < count:
            raise ValueError(f"{self.file} is damaged: it ends too early")
        return value.reshape(self.shape if not rows else (last - first, *self.shape[1:]))


def _safetensors(files: list[Path], layout: Layout) -> Weights:
    stored: dict[str, _Stored] = {}
    for path in files:
        for name, where in _header(path).items():
            if name in stored:
                raise ValueError(f"{path} and {stored[name].file} both hold {name}")
            stored[name] = where
    by_name: dict[str, str] = {}
    for name, where in sorted(stored.items()):
        if name.endswith(SCALE) and name.removesuffix(SCALE) in stored:
            continue
        if where.dtype is np.int8 and name + SCALE not in stored:
            raise ValueError(f"{where.file} is damaged: {name} has 8 bits but no {name}{SCALE}")
        ours = layout.canonical(name)
        if ours in by_name:
            raise ValueError(f"{where.file} holds {ours} under two names")
        by_name[ours] = name

    def read(name: str, rows: slice | None = None) -> Any:
        theirs = by_name[name]
        value = stored[theirs].read(rows)
        scale = stored.get(theirs + SCALE)
        return value.astype(np.float32) * scale.read(rows) if scale else value

    shapes = {ours: stored[theirs].shape for ours, theirs in by_name.items()}
    return Weights(layout, shapes, read, read)


def _header(path: Path) -> dict[str, _Stored]:
    """What a safetensors file holds; the library checks that it is whole."""
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
    found: dict[str, _Stored] = {}
    for name, value in header.items():
        if value["dtype"] not in DTYPES:
            raise ValueError(
                f"{path}: {name} is stored as {value['dtype']}; expected one of {', '.join(DTYPES)}"
            )
        start = 8 + size + value["data_offsets"][0]
        found[name] = _Stored(path, DTYPES[value["dtype"]], tuple(value["shape"]), start)
    return found


def _shards(folder: Path) -> list[Path]:
    path = folder / INDEX
    try:
        parts = sorted(set(json.loads(path.read_bytes())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not an index with a weight_map: {error}") from error
    missing = [part for part in parts if not (folder / part).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{path} names {len(parts)} files, of which {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing: copy or download them"
        )
    return [folder / part for part in parts]


# --- TensorFlow


def _tensorflow(prefix: Path) -> Weights:
    """A TensorFlow checkpoint; which of the two kinds it is, its keys say."""
    import tensorflow as tf

    try:
        reader = tf.train.load_checkpoint(str(prefix))
        there = reader.get_variable_to_shape_map()
    except (tf.errors.OpError, LookupError, ValueError, RuntimeError) as error:
        raise ValueError(f"{prefix} is damaged: {_first_line(error)}") from error
    of_objects = any("CHECKPOINTABLE_OBJECT_GRAPH" in name for name in there)
    shapes = {n: tuple(shape) for n, shape in there.items() if not _TF_IGNORED.search(n)}
    by_name = {_port_name(n, shape): n for n, shape in shapes.items()} if of_objects else {}
    if of_objects and len(by_name) < len(shapes):
        raise ValueError(f"{prefix} holds two models; expected the one that `mk_model` makes")

    def read(name: str) -> Any:
        try:
            return reader.get_tensor(by_name.get(name, name))
        except (tf.errors.OpError, LookupError, ValueError, RuntimeError) as error:
            raise ValueError(f"{prefix} is damaged: {name}: {_first_line(error)}") from error

    if not of_objects:
        return Weights(names.TF1, shapes, read)
    return Weights(names.TF2, {ours: shapes[theirs] for ours, theirs in by_name.items()}, read)


def _port_name(name: str, shape: tuple[int, ...]) -> str:
    """A name in an object graph without the way to the encoder or the head.

    The heads are layers known only by their number; their kernels are ``[2, hidden]`` and
    ``[5, hidden]``, their biases ``[2]`` and ``[5]``.

    >>> _port_name("model/layer_with_weights-2/bias/.ATTRIBUTES/VARIABLE_VALUE", (5,))
    'ans_type/bias'
    """
    name = name.removesuffix(_VALUE)
    part = _PORT_PART.search(name)
    if part:
        return part.group()
    head = {2: "logits", 5: "ans_type"}.get(shape[0]) if shape else None
    return f"{head}/{name.rsplit('/', 1)[-1]}" if head else name


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
