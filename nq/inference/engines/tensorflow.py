"""TensorFlow runs the network: traced, and as the profile requires frozen or compiled by XLA."""

import contextlib
import gc
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import (
    convert_variables_to_constants_v2 as constants,
)

from nq.inference.batches import Shape
from nq.inference.engine import Computation, Step
from nq.inference.profile import Profile, ProfileNotInForceError
from nq.inference.scorer import Rows
from nq.records import WINDOW_COLUMNS

PRODUCTS = ("MatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum")
READS = ("ReadVariableOp", "ResourceGather")

_OPTIONS_LOCK = threading.RLock()
"""TensorFlow's rewrite options are process-wide, so one thread at a time may set them."""


@contextlib.contextmanager
def grappler_options(options: Mapping[str, bool]) -> Iterator[None]:
    """Sets TensorFlow's process-wide rewrite options for the block; other threads wait."""
    optimizer = tf.config.optimizer
    with _OPTIONS_LOCK:
        before = optimizer.get_experimental_options()
        optimizer.set_experimental_options(dict(options))
        try:
            yield
        finally:
            optimizer.set_experimental_options({name: before.get(name) for name in options})


@contextlib.contextmanager
def memory_error() -> Iterator[None]:
    """Raises TensorFlow's error for too little memory of a device as a ``MemoryError``."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise MemoryError(str(error)) from error


def device() -> str:
    """Returns the device that TensorFlow uses, ``GPU`` or ``CPU``."""
    return "GPU" if tf.config.get_visible_devices("GPU") else "CPU"


class Engine:
    """Traces the network once for each shape; the caller sets the ``options``."""

    any_shape = False

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.device = device()
        self.precision = computation.profile.precision(self.device)

    def options(self) -> contextlib.AbstractContextManager[None]:
        return grappler_options(self.computation.profile.changes.grappler)

    def compiled(self, shape: Shape) -> Step:
        columns = [name for name in WINDOW_COLUMNS if not (shape.full and name == "input_mask")]
        with memory_error():
            traced = self._traced(shape, columns)
        check_in_force(self.computation.profile, traced, self.precision)

        def step(rows: Rows) -> list[Any]:
            with memory_error():
                results = traced(*(tf.constant(rows[n]) for n in columns))
                return [column.numpy() for column in results]

        return step

    def _traced(self, shape: Shape, columns: Sequence[str]) -> Any:
        network = self.computation.network
        changes = self.computation.profile.changes
        model = network.unmasked if shape.full else network.model

        def compute(*rows: Any) -> Any:
            named = dict(zip(columns, rows, strict=True))
            token_map = named.pop("token_map")
            return self.computation.reduction(model(named, training=False), token_map)

        signature = [tf.TensorSpec((shape.batch_size, shape.length), tf.int32)] * len(columns)
        # without AutoGraph, which would write a file for each function
        function = partial(tf.function, input_signature=signature, autograph=False)
        if changes.frozen:
            compute = constants(function(compute).get_concrete_function())
            gc.collect()  # freezing leaves copies of the weights that reference each other
            if not changes.jit_compile:
                return compute
        step = function(compute, jit_compile=changes.jit_compile or None)
        return step.get_concrete_function()


def check_in_force(profile: Profile, step: Any, precision: str) -> None:
    """Checks a traced step, whose products have a compute type, against its profile."""
    changes = profile.changes
    graph = step.graph.as_graph_def()
    nodes = list(graph.node)
    for function in graph.library.function:
        nodes += function.node_def
    products = {tf.as_dtype(n.attr["T"].type).name for n in nodes if n.op in PRODUCTS}
    heads = {"float32"}  # which a dual encoder does not have
    is_compiled = step.function_def.attr["_XlaMustCompile"].b
    is_frozen = not any(node.op in READS for node in nodes)
    checks: dict[str, tuple[object, object]] = {
        "compiled by XLA": (is_compiled, changes.jit_compile),
        "types of the matrix products": (sorted(products | heads), sorted({precision, *heads})),
        "weights frozen": (is_frozen, changes.frozen),
    }
    options = tf.config.optimizer.get_experimental_options()
    for name, on in changes.grappler.items():
        checks[f"Grappler's {name}"] = options.get(name), on
    for what, (actual, expected) in checks.items():
        if actual != expected:
            raise ProfileNotInForceError(profile, what, actual, expected)
