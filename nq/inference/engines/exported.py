"""The part that engines outside of TensorFlow share: the reduction of their logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from nq.inference.batches import Shape
from nq.inference.engine import Step
from nq.inference.reduction import Reduction
from nq.inference.scorer import Rows

Logits = Mapping[str, Any]


def with_reduction(compute: Callable[[Rows], Logits], reduction: Reduction, shape: Shape) -> Step:
    """Returns a step that computes logits by ``compute`` and reduces them by TensorFlow."""
    lengths = {"start_logits": [shape.length], "end_logits": [shape.length], "type_logits": [5]}
    signature = (
        {name: tf.TensorSpec((shape.batch_size, *size)) for name, size in lengths.items()},
        tf.TensorSpec((shape.batch_size, shape.length), tf.int32),
    )
    reduce = tf.function(reduction, signature).get_concrete_function()

    def step(rows: Rows) -> list[Any]:
        logits = {name: tf.constant(x) for name, x in compute(rows).items()}
        return [column.numpy() for column in reduce(logits, tf.constant(rows["token_map"]))]

    return step
