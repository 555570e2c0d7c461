"""The tensor split of a transformer by Megatron-LM, on Keras' JAX backend.

The columns of query, key and value and of the intermediate product, and the rows of the two
products after them are divided among devices, so that each device has whole heads and whole units.
A layer then needs two all-reduces: Shoeybi et al. 2019, https://arxiv.org/abs/1909.08053. All but
``by_device`` needs a process whose Keras has this backend.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from experiments import Values
from experiments.partition.stages import check_devices
from experiments.units import seconds
from nq.model import joint
from nq.model.attention import SelfAttention
from nq.model.config import ModelConfig
from nq.model.encoder import Layers
from nq.records import FloatArray

AXIS = "model"
COLUMNS = ("qkv", "intermediate")
ROWS = ("attention_output", "output")
SPECS: dict[str, tuple[str | None, ...]] = {
    **{f"{part}/kernel": (None, AXIS) for part in COLUMNS},
    **{f"{part}/bias": (AXIS,) for part in COLUMNS},
    **{f"{part}/kernel": (AXIS,) for part in ROWS},
}
"""Which axis of a layer's weight is divided; every device has all other weights whole."""
LAYER = re.compile(r"layer_\d+_(.+)")
ALL_REDUCE = re.compile(r"stablehlo\.all_reduce")
COMPILED_ALL_REDUCE = re.compile(r" all-reduce(?:-start)?\(")


class RowSplit(keras.layers.Layer):
    """A dense layer of whose kernel each device has some rows: a product, an all-reduce, a bias.

    Args:
        units: number of outputs.

    Call arguments:
        x: ``[N, in / devices]``.

    Returns:
        ``[N, units]``, the same on all devices.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], self.units), name="kernel")
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias")

    def call(self, x: Any) -> Any:
        from jax.lax import psum

        # after the all-reduce: before it, each device would add the bias once
        return psum(ops.matmul(x, self.kernel), AXIS) + self.bias

    def compute_output_shape(self, shape: Any) -> Any:
        return (*shape[:-1], self.units)


@dataclass(frozen=True)
class SplitLayers(Layers):
    """Creates the layers of one of the devices."""

    devices: int = 1

    def __call__(self, kind: type[keras.layers.Layer], name: str, *args: Any, **kwargs: Any) -> Any:
        if kind is SelfAttention:
            heads, *others = args
            args = heads // self.devices, *others
        return super().__call__(kind, name, *args, **kwargs)

    def dense(self, units: int, name: str, **kwargs: Any) -> Any:
        match = LAYER.fullmatch(name)
        if match and match[1] in COLUMNS:
            return super().dense(units // self.devices, name, **kwargs)
        if match and match[1] in ROWS:
            return self(RowSplit, name, units)  # it has a bias and no activation
        return super().dense(units, name, **kwargs)


def by_device(value: FloatArray, devices: int) -> FloatArray:
    """Permutes the columns of query, key and value so that each device has whole heads.

    Args:
        value: ``[…, 3 * hidden]``: all queries, all keys, all values.
        devices: number of devices.

    Returns:
        ``[…, 3 * hidden]``: queries, keys and values of the first device, then of the second one.

    >>> by_device(np.arange(12), 2)
    array([ 0,  1,  4,  5,  8,  9,  2,  3,  6,  7, 10, 11])
    """
    *rows, columns = value.shape
    parts = value.reshape(*rows, 3, devices, columns // 3 // devices)
    return np.ascontiguousarray(parts.swapaxes(-3, -2)).reshape(value.shape)


@dataclass(frozen=True, eq=False)
class Program:
    """A compiled model with its weights, which returns the logits of a batch.

    ``all_reduces`` are those in the program of one device as it is given to XLA, which may combine
    some (``compiled_all_reduces``).
    """

    compute: Callable[[Values], Values]
    all_reduces: int
    compiled_all_reduces: int


def program(config: ModelConfig, model: keras.Model, inputs: Values, devices: int) -> Program:
    """Compiles a model of ``joint.build`` for a batch; one device computes it as it is."""
    import jax

    check_devices(config, devices)
    own, mesh = model, _mesh(devices)
    if devices > 1:  # the model of one device, whose weights get their values below
        zeros = keras.initializers.Zeros()
        own = joint.connect_layers(
            config, SplitLayers(keras.DTypePolicy("float32"), zeros, devices=devices)
        )

    def compute(weights: list[Any], rows: Values) -> Any:
        outputs, _ = own.stateless_call(weights, [], dict(rows), training=False)
        return outputs

    whole = _spec()
    paths = [variable.path for variable in own.trainable_variables]
    if devices > 1:
        compute = jax.shard_map(
            compute,
            mesh=mesh,
            in_specs=([_spec(path) for path in paths], whole),
            out_specs=whole,
            check_vma=False,
        )
    values = {variable.path: variable.numpy() for variable in model.weights}
    weights = [_placed(path, values[path], mesh) for path in paths]
    lowered = jax.jit(compute).lower(weights, dict(inputs))
    compiled = lowered.compile()
    return Program(
        lambda rows: compiled(weights, dict(rows)),
        len(ALL_REDUCE.findall(lowered.as_text())),
        len(COMPILED_ALL_REDUCE.findall(compiled.as_text())),
    )


def _mesh(devices: int) -> Any:
    import jax

    there = jax.devices()
    if len(there) < devices:
        raise ValueError(
            f"JAX has {len(there)} devices, {devices} are needed: set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={devices} before it starts"
        )
    return jax.sharding.Mesh(np.asarray(there[:devices]), (AXIS,))


def _spec(path: str = "") -> Any:
    """Returns how a weight is divided, by its path."""
    from jax.sharding import PartitionSpec

    match = LAYER.fullmatch(path)
    return PartitionSpec(*SPECS.get(match[1], ()) if match else ())


def _placed(path: str, value: FloatArray, mesh: Any) -> Any:
    """Returns a weight on its devices."""
    import jax

    if "_qkv/" in path:
        value = by_device(value, mesh.size)
    return jax.device_put(value, jax.sharding.NamedSharding(mesh, _spec(path)))


def all_reduce(shape: tuple[int, ...], devices: int) -> Callable[[], float]:
    """Returns a function that measures one all-reduce of a float32 array, in seconds."""
    import jax

    mesh, whole = _mesh(devices), _spec()

    def add(values: Any) -> Any:
        return jax.lax.psum(values, AXIS)

    mapped = jax.shard_map(
        add,
        mesh=mesh,
        in_specs=whole,
        out_specs=whole,
        check_vma=False,
    )
    values = jax.device_put(np.ones(shape, np.float32), jax.sharding.NamedSharding(mesh, whole))
    reduce = jax.jit(mapped)
    reduce(values).block_until_ready()
    return lambda: seconds(lambda: reduce(values).block_until_ready())
