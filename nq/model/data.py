"""Reads the records that ``nq.formats.tfrecord`` writes, with tf.data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from nq.records import IntArray

ROWS = ("input_ids", "input_mask", "segment_ids")
TARGETS = ("start_positions", "end_positions", "answer_types")
READ_BATCH = 256


def spec(length: int, training: bool) -> dict[str, tf.io.FixedLenFeature]:
    """Returns the features of a record; see ``nq.formats.tfrecord``."""
    shapes: dict[str, list[int]] = {name: [length] for name in ROWS}
    if training:
        shapes.update({name: [] for name in TARGETS})
    else:
        shapes.update({"token_map": [length], "example_keys": [2], "window_ids": [2]})
    return {name: tf.io.FixedLenFeature(shape, tf.int64) for name, shape in shapes.items()}


def records(shards: Sequence[Path]) -> tf.data.TFRecordDataset:
    """Returns the serialized records of all shards, in order.

    Autotuning is disabled: there is nothing to tune, and the end of every iterator waits for its
    thread, which sleeps for up to a minute.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return tf.data.TFRecordDataset([str(s) for s in shards]).with_options(options)


def read_columns(shards: Sequence[Path], length: int) -> dict[str, IntArray]:
    """Returns all training records of all shards as one array per column."""
    features = spec(length, training=True)
    dataset = records(shards).batch(READ_BATCH)
    parts: dict[str, list[IntArray]] = {name: [] for name in features}
    for batch in dataset.map(lambda rows: tf.io.parse_example(rows, features)):
        for name, value in batch.items():
            parts[name].append(value.numpy().astype(np.int32))
    return {name: np.concatenate(values) for name, values in parts.items() if values}


def window_ids(record: tf.Tensor) -> tuple[int, int]:
    """Returns the number of a serialized window and the number of windows of its example."""
    ids = tf.io.parse_single_example(record, {"window_ids": tf.io.FixedLenFeature([2], tf.int64)})
    window, windows = ids["window_ids"].numpy().tolist()
    return window, windows
