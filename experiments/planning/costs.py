"""Seconds and bytes of a model on a device: by its operations, or by its memory, if that is slower.

The roofline: Williams, Waterman and Patterson 2009, https://doi.org/10.1145/1498765.1498785. The
operations are divided by what a device sustains in a whole encoder, so that norms, activation
functions and the starts of kernels are part of it.

A message of n bytes takes ``latency + n / bandwidth``. An all-reduce uses a ring of p devices, in
which all links are busy at once: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms
for clusters of workstations"; Thakur, Rabenseifner and Gropp 2005.
"""

import math
from dataclasses import dataclass
from functools import cache, cached_property

from experiments.planning.devices import VALUE_BYTES, Device
from experiments.planning.models import layer_flop, weight_shapes
from experiments.planning.pipeline import Stage
from nq.model.config import ModelConfig
from nq.model.names import HEADS
from nq.model.tensors import check_length
from nq.records import AnswerType

WEIGHT_BYTES = {"float32": 4, "bfloat16": 6, "float16": 6, "int8": 5}
"""Bytes of a weight: profiles keep weights in float32, and compute with copies of the type."""
ALL_REDUCES_PER_LAYER = 2
"""Of a layer whose matrices are split over devices: the first matrix of attention and of the inner
product by columns, the second one by rows, so that each device has a summand of the output. Shoeybi
et al. 2019, "Megatron-LM", https://arxiv.org/abs/1909.08053."""


def send_s(size: float, device: Device) -> float:
    """Returns the seconds of a message of ``size`` bytes from one device to another."""
    return 1e-6 * device.link_latency_us + size / (1e9 * device.link_gb_per_s)


def all_reduce_s(size: float, devices: int, device: Device) -> float:
    """Returns the seconds until each of p devices has the sum, of n bytes, of a summand of each.

    A reduce-scatter and an all-gather have p - 1 steps each, in which every device passes on a part
    of n / p bytes: 2 (p-1) (latency + n / p / bandwidth).
    """
    return 2 * (devices - 1) * send_s(size / devices, device)


@dataclass(frozen=True)
class Workload:
    """What is to be computed.

    ``batch`` windows of ``length`` pieces enter together, over all devices; all batches have
    ``windows``, ``None`` if their number does not matter.
    """

    config: ModelConfig
    batch: int
    length: int
    compute_type: str = "float32"
    windows: int | None = None

    def __post_init__(self) -> None:
        check_length(self.config, self.length)

    @property
    def value_bytes(self) -> int:
        """Bytes of an activation."""
        return VALUE_BYTES[self.compute_type]

    def activation_bytes(self, windows: int) -> float:
        """Returns the bytes of ``windows`` windows between two layers."""
        return windows * self.length * self.config.hidden_size * self.value_bytes


@dataclass(frozen=True)
class Unit:
    """A part of the model that a pipeline does not cut.

    Args:
        weights: name of its weights; layers of the same name share them.
        flop: operations for a window.
        whole: number of weights that each device holds.
        split: number of weights that a tensor split divides.
        read: number of weights that a batch reads.
        values: number of activations that are read and written for a window.
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
    """Returns the parts of a model for windows of ``length`` pieces: embeddings, layers, heads."""
    sizes = {path: math.prod(shape) for path, shape in weight_shapes(config).items()}
    hidden = config.hidden_size
    width = config.table_width
    flop = layer_flop(config, length)
    values = length * hidden
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
    """The costs of the parts of a model on one of equal devices.

    ``windows`` are computed together, and ``tensor`` devices share each layer.
    """

    workload: Workload
    device: Device
    windows: int
    tensor: int = 1

    @cached_property
    def seconds(self) -> tuple[float, ...]:
        """The time of each part: the longer of computing and of reading, and the all-reduces."""
        work = self.workload
        device = self.device
        seconds = list[float]()
        reduced_s = all_reduce_s(work.activation_bytes(self.windows), self.tensor, device)
        for unit in units(work.config, work.length):
            share = self.tensor if unit.is_layer else 1
            exchange = ALL_REDUCES_PER_LAYER * reduced_s if unit.is_layer else 0.0
            computing = self.windows * unit.flop / share / device.flop_per_s[work.compute_type]
            values = unit.read / share + self.windows * unit.values
            reading = values * work.value_bytes / (1e9 * device.memory_gb_per_s)
            seconds.append(max(computing, reading) + exchange)
        return tuple(seconds)

    def stage_bytes(self, stage: Stage) -> float:
        """Returns the memory of a device of a stage: weights, activations and engine.

        Layers are computed one after the other, so that only the activations of one layer are in
        memory: its input and output, and the larger one of attention (queries, keys, values, scores
        before and after softmax, output) and the inner product before and after its activation
        function. A stage of several also receives a micro-batch and sends one meanwhile.
        """
        work = self.workload
        config = self.workload.config
        every = units(config, work.length)
        parts = every[stage.first : stage.end]
        held = {unit.weights: unit.whole + unit.split / self.tensor for unit in parts}
        attention = 4 * config.attention_width + 2 * config.num_attention_heads * work.length
        inner = max(attention, 2 * config.intermediate_size) / self.tensor
        values = self.windows * work.length * (2 * config.hidden_size + inner)
        waiting = 0.0 if parts == every else 2 * work.activation_bytes(self.windows)
        weights = sum(held.values()) * WEIGHT_BYTES[work.compute_type]
        return weights + values * work.value_bytes + waiting + 1e9 * self.device.engine_gb
