"""TensorFlow: a traced step, its weights frozen, compiled by XLA, as the profile says."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import (
    convert_variables_to_constants_v2 as constants,
)

from nq.inference.batches import Shape
from nq.inference.engine import COLUMNS, Rows, Step, Task
from nq.inference.profile import Profile, ProfileNotInForceError

PRODUCTS = ("MatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum")
READS = ("ReadVariableOp", "ResourceGather")


def device() -> str:
    """Where TensorFlow computes: ``GPU`` or ``CPU``."""
    return "GPU" if tf.config.list_physical_devices("GPU") else "CPU"


class Engine:
    """Traces the network once for each shape; Grappler's options are the caller's."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.device = device()
        self.precision = task.profile.precision(self.device)

    def compiled(self, shape: Shape) -> Step:
        """See ``nq.inference.engine.Engine``."""
        columns = [name for name in COLUMNS if not (shape.full and name == "input_mask")]
        traced = self._traced(shape, columns)
        check_in_force(self.task.profile, traced, self.precision)

        def step(rows: Rows) -> list[Any]:
            return [column.numpy() for column in traced(*(tf.constant(rows[n]) for n in columns))]

        return step

    def _traced(self, shape: Shape, columns: Sequence[str]) -> Any:
        model, changes = self.task.network.wired(shape.full), self.task.profile.changes

        def compute(*rows: Any) -> Any:
            named = dict(zip(columns, rows, strict=True))
            token_map = named.pop("token_map")
            return self.task.selection(model(named, training=False), token_map)

        signature = [tf.TensorSpec((shape.batch_size, shape.length), tf.int32)] * len(columns)
        if changes.frozen:
            compute = constants(tf.function(compute, signature).get_concrete_function())
            gc.collect()  # freezing leaves several copies of the weights in circles
        elif not changes.jit_compile:
            return tf.function(compute, signature).get_concrete_function()
        if changes.jit_compile:
            compute = tf.function(compute, signature, jit_compile=True).get_concrete_function()
        return compute


def check_in_force(profile: Profile, step: Any, precision: str) -> None:
    """Checks a traced step against its profile.

    Args:
        profile: what was asked.
        step: the concrete function that runs.
        precision: the type that is to be computed in.

    Raises:
        ProfileNotInForceError: names what is missing or too much.
    """
    changes = profile.changes
    graph = step.graph.as_graph_def()
    nodes = [
        n for part in (graph.node, *(f.node_def for f in graph.library.function)) for n in part
    ]
    products = {tf.as_dtype(n.attr["T"].type).name for n in nodes if n.op in PRODUCTS}
    options = tf.config.optimizer.get_experimental_options()
    for what, found, asked in (
        ("compiled by XLA", step.function_def.attr["_XlaMustCompile"].b, changes.jit_compile),
        ("types of the matrix products", sorted(products), sorted({precision, "float32"})),
        ("weights frozen", not any(n.op in READS for n in nodes), changes.frozen),
        *((f"Grappler's {name}", options.get(name), on) for name, on in changes.grappler.items()),
    ):
        if found != asked:
            raise ProfileNotInForceError(profile, what, found, asked)
