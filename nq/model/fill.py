"""Weights of a model are filled from the tensors of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nq.model.names import Part, Table
from nq.model.shapes import WORD_EMBEDDINGS, check_shape
from nq.model.tensors import CheckpointTensors
from nq.records import FloatArray

TYPE_HEAD = ("type_output/kernel", "type_output/bias")


@dataclass(frozen=True)
class LoadReport:
    """The differences between a model and the checkpoint that filled it.

    Args:
        missing: paths of the weights that the checkpoint lacks; of word embeddings that lack some
            rows with these, as in ``embeddings/word_embeddings[30000:]``.
        unexpected: tensors of the checkpoint that fill no weight.
    """

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()

    @property
    def lacks_type_head(self) -> bool:
        """Whether all type logits are 0, so that the [CLS] score alone decides on null."""
        return TYPE_HEAD[0] in self.missing

    def warning(self) -> str:
        """Returns one line on the missing weights that matter, an empty one if none does."""
        unused = ("type_output", "pooler") if self.lacks_type_head else ()
        random = [name for name in self.missing if not name.startswith(unused)]
        warnings = [f"not in the checkpoint, left random: {', '.join(random)}"] if random else []
        if self.lacks_type_head:
            warnings.append("no head for types in the checkpoint: null is decided by [CLS] alone")
        return "; ".join(warnings)


def fill(model: Any, tensors: CheckpointTensors, table: Table) -> LoadReport:
    """Fills a model's weights from the tensors of a checkpoint, one weight at a time.

    All shapes are compared first, so that nothing is filled if one is wrong. If the checkpoint
    lacks the type head, it becomes zero, so that all types have the same logit. Missing rows of
    the word embeddings are drawn at random.

    Raises:
        ValueError: a tensor has another shape than the config describes.
    """
    missing: list[str] = []
    filled: list[tuple[Any, list[Part]]] = []
    for variable in model.weights:
        parts = table.get(variable.path, [])
        if not parts or any(part.name not in tensors.shapes for part in parts):
            missing.append(variable.path)
            continue
        for part in parts:
            stored = tensors.shapes[part.name]
            check_shape(variable.path, tuple(variable.shape), part, len(parts), stored)
        rows = tensors.shapes[parts[0].name][0]
        if variable.path == WORD_EMBEDDINGS and rows < variable.shape[0]:
            missing.append(f"{variable.path}[{rows}:]")
        filled.append((variable, parts))
    for variable, parts in filled:
        for first, block in _blocks(variable, parts, tensors):
            _write(variable, block, first)
    for variable in model.weights:
        if variable.path in TYPE_HEAD and variable.path in missing:
            variable.assign(np.zeros(variable.shape, np.float32))
    used = {part.name for _, parts in filled for part in parts}
    return LoadReport(tuple(missing), tuple(sorted(tensors.shapes.keys() - used)))


def _blocks(
    variable: Any, parts: Sequence[Part], tensors: CheckpointTensors
) -> Iterator[tuple[int, FloatArray]]:
    """Yields blocks of rows of a weight's value, each with the number of its first row.

    Only word embeddings, the largest weight by far, are more than one block.
    """
    if variable.path != WORD_EMBEDDINGS:
        values = [tensors[part.name].T if part.transposed else tensors[part.name] for part in parts]
        yield 0, values[0] if len(values) == 1 else np.concatenate(values, axis=-1)
        return
    yield from tensors.chunks(parts[0].name)
    rows, (all_rows, *columns) = tensors.shapes[parts[0].name][0], variable.shape
    if rows < all_rows:
        draw = np.random.default_rng(0)
        yield rows, draw.normal(0, 0.02, (all_rows - rows, *columns)).astype(np.float32)


def _write(variable: Any, rows: FloatArray, first: int) -> None:
    """Writes rows into a weight, with TensorFlow in place.

    An assignment would allocate the weight once more, and other backends have no other way.
    """
    import keras

    values = rows.astype(variable.dtype)  # ml_dtypes adds bfloat16 to numpy
    if keras.config.backend() != "tensorflow":
        whole = np.array(variable.numpy())
        whole[first : first + len(rows)] = values
        variable.assign(whole)
        return
    from tensorflow import raw_ops

    indices = np.arange(first, first + len(rows), dtype=np.int32)
    raw_ops.ResourceScatterUpdate(resource=variable.value.handle, indices=indices, updates=values)
