"""The part that engines outside of TensorFlow share: the top k of their logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from nq.inference.batches import Shape
from nq.inference.engine import Step
from nq.inference.scorer import Rows
from nq.inference.top_k import TopK

Logits = Mapping[str, Any]


def with_top_k(compute: Callable[[Rows], Logits], top_k: TopK, shape: Shape) -> Step:
    """Returns a step that computes logits by ``compute`` and their top k by TensorFlow."""
    lengths = {"start_logits": [shape.length], "end_logits": [shape.length], "type_logits": [5]}
    signature = (
        {name: tf.TensorSpec((shape.batch_size, *size)) for name, size in lengths.items()},
        tf.TensorSpec((shape.batch_size, shape.length), tf.int32),
    )
    reduce = tf.function(top_k, signature).get_concrete_function()

    def step(rows: Rows) -> list[Any]:
        logits = {name: tf.constant(x) for name, x in compute(rows).items()}
        return [column.numpy() for column in reduce(logits, tf.constant(rows["token_map"]))]

    return step
