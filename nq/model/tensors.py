"""The tensors of a checkpoint, independent of the format of its files."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from nq.config import ModelConfig
from nq.model import names
from nq.model.names import Layout, Table
from nq.records import FloatArray

HEADS = ("pooler", "span_output", "type_output")
CHUNK_BYTES = 16 << 20


class CheckpointTensors(Mapping[str, FloatArray]):
    """The tensors of a checkpoint by name, each read as float32 at every access.

    Args:
        layout: how the tensors are named.
        shapes: the shape of each tensor.
        read: reads a tensor, by name.
        read_rows: reads some rows of a tensor, where the format allows it.
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

    def __getitem__(self, name: str) -> FloatArray:
        if name not in self.shapes:
            raise KeyError(name)
        return np.asarray(self._read(name)).astype(np.float32, copy=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __contains__(self, name: object) -> bool:
        return name in self.shapes

    def chunks(self, name: str) -> Iterator[tuple[int, FloatArray]]:
        """Yields blocks of rows of a tensor, each with the number of its first row.

        A tensor of a format without access to single rows is one block.
        """
        if not self._read_rows:
            yield 0, self[name]
            return
        rows, *rest = self.shapes[name]
        step = max(1, CHUNK_BYTES // (4 * math.prod(rest)))
        for first in range(0, rows, step):
            block = self._read_rows(name, slice(first, min(first + step, rows)))
            yield first, np.asarray(block).astype(np.float32, copy=False)

    def table(self, config: ModelConfig) -> Table:
        """Returns the tensors that fill each weight of a model of the shape ``config``.

        Raises:
            ValueError: tensors of the encoder are missing, or there are more layers than the
                config describes.
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
                f"that config.json describes, such as {missing[0]}: it holds "
                f"{', '.join(sorted(self)[:3])} …; weights and config do not belong together"
            )
        known = {part.name for parts in table.values() for part in parts}
        deeper = names.table(_with_one_more_layer(config), self.layout).values()
        beyond = [part.name for parts in deeper for part in parts if part.name not in known]
        unknown = [name for name in beyond if name in self]
        if unknown:
            raise ValueError(
                f"the checkpoint holds {unknown[0]}, of a layer beyond the {config.layer_sets} "
                "that config.json describes; weights and config do not belong together"
            )
        return table


def _with_one_more_layer(config: ModelConfig) -> ModelConfig:
    groups = config.num_hidden_groups
    return dataclasses.replace(
        config,
        num_hidden_layers=config.num_hidden_layers + 1,
        num_hidden_groups=groups + 1 if groups else 0,
    )
