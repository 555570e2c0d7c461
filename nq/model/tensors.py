"""The tensors of a checkpoint, in files of any format, and the size of the model that they fill."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nq.model.config import ModelConfig
from nq.model.names import (
    HEADS,
    MISSING_ROWS,
    WORD_EMBEDDINGS,
    Layout,
    TensorShape,
    Weight,
    weight_table,
)
from nq.records import FloatArray
from nq.text import truncate

APART = "weights and config.json do not belong together"


@dataclass(frozen=True)
class CheckpointTensors:
    """The tensors of a checkpoint by name; ``read`` returns one as float32."""

    layout: Layout
    shapes: Mapping[str, TensorShape]
    read: Callable[[str], FloatArray]

    def fill(self, weight: Weight) -> bool:
        """Returns whether the checkpoint has all tensors of a weight."""
        return all(name in self.shapes for name in weight.tensors)

    def table(self, config: ModelConfig) -> dict[str, Weight]:
        """Returns the weights of a model, which the tensors can fill, before it is built."""
        layers = self.layout.layers(self.shapes)
        table = weight_table(config, self.layout)
        encoder = [n for path, w in table.items() if not path.startswith(HEADS) for n in w.tensors]
        missing = [name for name in encoder if name not in self.shapes]
        if missing:
            held = truncate(", ".join(sorted(self.shapes)[:3]), 200)
            raise ValueError(
                f"the checkpoint lacks {len(missing)} of the {len(encoder)} tensors of the encoder "
                f"that config.json describes, such as {missing[0]}: it holds {held} …; {APART}"
            )
        beyond = sorted(layers.keys() - range(config.layer_sets))
        if beyond:
            what = f"{layers[beyond[0]]}, of a layer beyond the {config.layer_sets} of config.json"
            raise ValueError(f"the checkpoint holds {what}: {APART}")
        for path, weight in table.items():
            *rows, columns = weight.shape
            expected = (*rows, columns // len(weight.tensors))
            if weight.transposed:
                expected = expected[::-1]
            for name in weight.tensors:
                stored = self.shapes.get(name, expected)
                lacks_rows = (
                    path == WORD_EMBEDDINGS
                    and stored[1:] == expected[1:]
                    and max(0, expected[0] - MISSING_ROWS) < stored[0] < expected[0]
                )
                if stored != expected and not lacks_rows:
                    raise ValueError(f"{name} has shape {stored}, expected {expected}: {APART}")
        needed = 2 * sum(math.prod(weight.shape) for weight in table.values())  # of 16 bits each
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > memory:
            raise ValueError(
                f"the weights of config.json take {needed >> 30} GB at least, this machine has "
                f"{memory >> 30} GB: choose a smaller model"
            )
        return table


def check_length(config: ModelConfig, length: int) -> None:
    """Checks that a model has positions for windows of ``length`` pieces."""
    most = config.positions
    if length > most:
        raise ValueError(f"max_seq_length {length} is beyond the model's {most} positions")
