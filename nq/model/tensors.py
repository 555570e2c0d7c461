"""The tensors of a checkpoint, independent of the format of its files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nq.config import ModelConfig
from nq.model import names
from nq.model.names import Layout, Table
from nq.model.shapes import check_memory, check_shape, weight_shapes
from nq.records import FloatArray
from nq.text import truncate

HEADS = ("pooler", "span_output", "type_output")
CHUNK_BYTES = 16 << 20
MAX_MISSING_LAYERS = 100
"""If a config describes more layers than the checkpoint holds, and more than this, not all missing
tensors are listed."""


@dataclass(frozen=True)
class CheckpointTensors:
    """The tensors of a checkpoint; ``tensors[name]`` reads one as float32.

    Args:
        layout: how the tensors are named.
        shapes: the shape of each tensor, by name.
        read: reads a tensor by name, or a slice of its rows if ``by_rows``.
        by_rows: whether the format allows to read single rows.
    """

    layout: Layout
    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[..., Any]
    by_rows: bool = False

    def __getitem__(self, name: str) -> FloatArray:
        return np.asarray(self.read(name)).astype(np.float32, copy=False)

    def chunks(self, name: str) -> Iterator[tuple[int, FloatArray]]:
        """Yields blocks of rows of a tensor, each with the number of its first row.

        A tensor of a format without access to single rows is one block.
        """
        if not self.by_rows:
            yield 0, self[name]
            return
        rows, *columns = self.shapes[name]
        step = max(1, CHUNK_BYTES // (4 * math.prod(columns)))
        for first in range(0, rows, step):
            block = self.read(name, slice(first, min(first + step, rows)))
            yield first, np.asarray(block).astype(np.float32, copy=False)

    def table(self, config: ModelConfig) -> Table:
        """Returns the tensors that fill each weight of a model of the shape ``config``.

        Nothing as large as the numbers of the config is made before the tensors support them.

        Raises:
            ValueError: tensors of the encoder are missing or have other shapes, or there are more
                layers than the config describes.
        """
        layers = self.layout.layers(self.shapes)
        if config.layer_sets > max(len(layers), MAX_MISSING_LAYERS):
            raise ValueError(
                f"config.json describes {config.layer_sets} layers, the checkpoint holds "
                f"{len(layers)}: weights and config do not belong together"
            )
        table = names.table(config, self.layout)
        encoder = [
            part.name
            for path, parts in table.items()
            if not path.startswith(HEADS)
            for part in parts
        ]
        missing = [name for name in encoder if name not in self.shapes]
        if missing:
            held = truncate(", ".join(sorted(self.shapes)[:3]), 200)
            raise ValueError(
                f"the checkpoint lacks {len(missing)} of the {len(encoder)} tensors of the encoder "
                f"that config.json describes, such as {missing[0]}: it holds {held} …; weights and "
                "config do not belong together"
            )
        unknown = sorted(layers.keys() - range(config.layer_sets))
        if unknown:
            raise ValueError(
                f"the checkpoint holds {layers[unknown[0]]}, of a layer beyond the "
                f"{config.layer_sets} that config.json describes; weights and config do not belong "
                "together"
            )
        for path, shape in weight_shapes(config).items():
            for part in table[path]:
                if part.name in self.shapes:
                    check_shape(path, shape, part, len(table[path]), self.shapes[part.name])
        check_memory(config)
        return table
