"""Seconds and bytes of a model on a device: by its operations, or by its memory, if that is slower.

The roofline: Williams, Waterman and Patterson 2009, https://doi.org/10.1145/1498765.1498785. The
operations are divided by what a device sustains in a whole encoder, so that norms, activation
functions and the starts of kernels are part of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property

from nq.config import ModelConfig
from nq.model.shapes import layer_flop, weight_shapes
from nq.planning.collectives import Transfer
from nq.planning.partition import Stage
from nq.planning.records import WEIGHT_BYTES, Device, Workload
from nq.planning.sharding import layer_operations, search
from nq.records import AnswerType

HEADS = ("pooler", "span_output", "type_output")


@dataclass(frozen=True)
class Unit:
    """A part of the model that a pipeline does not cut.

    Args:
        weights: name of its weights; layers of the same name share them.
        flop: operations of a window.
        whole: number of its weights that each device holds.
        split: number of those that a tensor split divides.
        read: number of those that a batch reads.
        values: that it reads and writes for a window.
        is_layer: whether it is a layer of the encoder, which a tensor split divides.
    """

    weights: str
    flop: float
    whole: int
    split: int
    read: int
    values: int
    is_layer: bool = False


@cache
def units(config: ModelConfig, length: int) -> tuple[Unit, ...]:
    """Returns the parts of a model: embeddings, layers, heads.

    Args:
        config: shape of the encoder.
        length: pieces of a window.
    """
    sizes = {path: math.prod(shape) for path, shape in weight_shapes(config).items()}
    hidden, width = config.hidden_size, config.table_width
    flop, values = layer_flop(config, length), length * hidden
    layers = []
    for i in range(config.num_hidden_layers):
        name = f"layer_{config.layer_set(i)}_"
        own = {path: size for path, size in sizes.items() if path.startswith(name)}
        split = sum(size for path, size in own.items() if path.endswith("/kernel"))
        total = sum(own.values())
        layers.append(Unit(name, flop, total - split, split, total, 2 * values, is_layer=True))
    heads = sum(size for path, size in sizes.items() if path.startswith(HEADS))
    tables = sum(size for path, size in sizes.items() if not path.startswith(("layer_", *HEADS)))
    projection = 2 * values * width if config.embedding_size else 0
    outputs = 2 * hidden * (hidden + 2 * length + len(AnswerType))
    return (
        Unit("tables", projection, tables, 0, 0, 4 * length * width + values),
        *layers,
        Unit("heads", outputs, heads, 0, heads, values),
    )


@dataclass(frozen=True)
class Costs:
    """What the parts of a model cost on a device.

    Args:
        workload: the model, its windows and types.
        device: each of those that compute it.
        windows: that are computed together.
        tensor: devices that share each layer.
    """

    workload: Workload
    device: Device
    windows: int
    tensor: int = 1

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """The parts of the model."""
        return units(self.workload.config, self.workload.length)

    @cached_property
    def exchange(self) -> Transfer:
        """The collectives of one layer: those of the fastest sharding of its weights."""
        if self.tensor == 1:
            return Transfer()
        work, device = self.workload, self.device
        rate, size = device.flop_per_s[work.compute_type], work.activation_bytes(self.windows)
        shape = work.config, work.length, self.windows, self.tensor
        operations = layer_operations(*shape, rate, work.value_bytes)
        return search(operations, self.tensor, device.link, input_bytes=size).transfer

    @cached_property
    def seconds(self) -> tuple[float, ...]:
        """The time of each part, a layer's with its collectives."""
        return tuple(map(self._seconds, self.units))

    def _seconds(self, unit: Unit) -> float:
        """Returns the longer one of computing and of reading from memory, and the exchange."""
        work, device = self.workload, self.device
        share, exchange = (self.tensor, self.exchange.seconds) if unit.is_layer else (1, 0.0)
        computing = self.windows * unit.flop / share / device.flop_per_s[work.compute_type]
        values = unit.read / share + self.windows * unit.values
        reading = values * work.value_bytes / device.memory_bytes_per_s
        return max(computing, reading) + exchange

    def stage_seconds(self, stage: Stage) -> float:
        """Returns the time of a stage."""
        return sum(self.seconds[stage.first : stage.end])

    def stage_bytes(self, stage: Stage) -> float:
        """Returns the memory of a device of a stage: weights, activations and engine.

        Layers are computed one after the other, so that the activations of one are there at a time:
        its input and output, and the larger one of attention (queries, keys, values, scores before
        and after softmax, output) and the inner product before and after its activation function. A
        stage of several also receives a micro-batch and sends one meanwhile.
        """
        work, config = self.workload, self.workload.config
        parts = self.units[stage.first : stage.end]
        held = {unit.weights: unit.whole + unit.split / self.tensor for unit in parts}
        attention = 4 * config.attention_width + 2 * config.num_attention_heads * work.length
        inner = max(attention, 2 * config.intermediate_size) / self.tensor
        values = self.windows * work.length * (2 * config.hidden_size + inner)
        is_only = len(parts) == len(self.units)
        waiting = 0.0 if is_only else 2 * work.activation_bytes(self.windows)
        weights = sum(held.values()) * WEIGHT_BYTES[work.compute_type]
        return weights + values * work.value_bytes + waiting + self.device.engine_bytes
