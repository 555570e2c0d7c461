"""What engines outside of TensorFlow share: the selection behind their logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from nq.inference.batches import Shape
from nq.inference.engine import Rows, Step
from nq.inference.top_k import Selection

Logits = Mapping[str, Any]


def selected(compute: Callable[[Rows], Logits], selection: Selection, shape: Shape) -> Step:
    """A step of what computes the logits, and the selection by TensorFlow."""
    lengths = {"start_logits": [shape.length], "end_logits": [shape.length], "type_logits": [5]}
    signature = (
        {name: tf.TensorSpec((shape.batch_size, *size)) for name, size in lengths.items()},
        tf.TensorSpec((shape.batch_size, shape.length), tf.int32),
    )
    select = tf.function(selection, signature).get_concrete_function()

    def step(rows: Rows) -> list[Any]:
        logits = {name: tf.constant(x) for name, x in compute(rows).items()}
        return [column.numpy() for column in select(logits, tf.constant(rows["token_map"]))]

    return step
