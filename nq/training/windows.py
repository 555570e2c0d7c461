"""Training windows in memory, and their batches of inputs and targets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from nq.formats.tfrecord import TARGETS, decode_records, training_shapes
from nq.formats.tfrecord_file import read_records
from nq.records import Columns, IntArray

LENGTH_STEP = 64
READ_BATCH = 1024


@dataclass(frozen=True, eq=False)
class TrainingWindows:
    """All training windows, stored compactly.

    Args:
        input_ids: ``[N, L]`` piece ids, padded with 0.
        n_query: ``[N]`` number of pieces of segment 0.
        n_pieces: ``[N]`` number of pieces without padding.
        start_positions, end_positions, answer_types: ``[N]`` targets.
    """

    input_ids: IntArray
    n_query: IntArray
    n_pieces: IntArray
    start_positions: IntArray
    end_positions: IntArray
    answer_types: IntArray

    def __len__(self) -> int:
        return len(self.input_ids)

    @classmethod
    def from_columns(cls, columns: Mapping[str, IntArray]) -> TrainingWindows:
        """Returns the windows in the columns of training TFRecords, each ``[N, …]``."""
        mask, segments = columns["input_mask"], columns["segment_ids"]
        ids = columns["input_ids"]
        return cls(
            ids.astype(np.uint16 if ids.max(initial=0) < 1 << 16 else np.int32),
            (mask - segments).sum(axis=1).astype(np.int32),
            mask.sum(axis=1).astype(np.int32),
            *(columns[name].reshape(-1).astype(np.int32) for name in TARGETS),
        )

    def digest(self) -> str:
        """Returns the SHA-256 of all windows."""
        return digest(getattr(self, f.name) for f in fields(self))

    def batch(self, rows: IntArray) -> tuple[dict[str, IntArray], dict[str, IntArray]]:
        """Returns inputs ``[B, L]`` and targets ``[B]`` of the windows ``rows``.

        L is the length of the longest of them, rounded up to a multiple of ``LENGTH_STEP``.
        """
        longest = int(self.n_pieces[rows].max())
        length = min(-(-longest // LENGTH_STEP) * LENGTH_STEP, self.input_ids.shape[1])
        pos = np.arange(length)[None, :]
        mask = pos < self.n_pieces[rows, None]
        inputs = {
            "input_ids": self.input_ids[rows, :length],
            "input_mask": mask,
            "segment_ids": mask & (pos >= self.n_query[rows, None]),
        }
        targets = {
            "start_logits": self.start_positions[rows],
            "end_logits": self.end_positions[rows],
            "type_logits": self.answer_types[rows],
        }
        return _int32(inputs), _int32(targets)


def _int32(columns: Mapping[str, Any]) -> dict[str, IntArray]:
    return {name: column.astype(np.int32) for name, column in columns.items()}


def digest(arrays: Iterable[Any]) -> str:
    """Returns the SHA-256 of the bytes of all arrays."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(array.tobytes())
    return total.hexdigest()


def read_columns(shards: Sequence[Path], length: int) -> Columns:
    """Returns all training records of all shards as one int32 array per column.

    Args:
        shards: TFRecord files, at least one record in all.
        length: pieces in a window.
    """
    records = chain.from_iterable(map(read_records, shards))
    parts = []
    while batch := list(islice(records, READ_BATCH)):
        parts.append(decode_records(batch, training_shapes(length)))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
