"""Positions of answers: read from training features, and fitted."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from experiments import positions
from nq.formats.tfrecord import frame

PIECES = ["[PAD]", "[CLS]", "[SEP]", "[ContextId=3]", "[Paragraph=1]", "[Table=2]", "a", "b"]


def write_features(path: Path, windows: list[tuple[list[str], int]]) -> Path:
    """Writes training windows, each with its pieces and the start of its answer."""

    def record(pieces: list[str], start: int) -> bytes:
        columns = {"input_ids": [PIECES.index(p) for p in pieces], "start_positions": [start]}
        feature = {
            name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
            for name, values in columns.items()
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        return bytes(example.SerializeToString())

    path.write_bytes(b"".join(frame(record(*window)) for window in windows))
    return path


def test_the_last_marker_before_the_answer_names_its_block(tmp_path: Path) -> None:
    text = ["[ContextId=3]", "[Paragraph=1]", "a", "[ContextId=3]", "[Table=2]", "b"]
    windows = [
        (["[CLS]", "a", "[SEP]", "b", "b"], 3),  # no marker: the next window counts
        (["[CLS]", "a", "[SEP]", *text], 5),
        (["[CLS]", "a", "[SEP]", *text], 8),  # the same question again
        (["[CLS]", "b", "[SEP]", *text], 8),
        (["[CLS]", "b", "a", "[SEP]", *text], 0),  # no answer
    ]
    path = write_features(tmp_path / "f.tfrecord", windows)
    assert positions.answer_positions([str(path)], PIECES) == [("Paragraph", 1), ("Table", 2)]
