"""Columns of training TFRecords -> batches of inputs and targets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from nq.model.data import TARGETS
from nq.records import IntArray

LENGTH_STEP = 64


@dataclass(frozen=True, eq=False)
class TrainingWindows:
    """All windows to train on, kept compact.

    Args:
        input_ids: ``[N, L]`` unsigned, zero padded.
        n_query: ``[N]`` pieces of segment 0.
        n_pieces: ``[N]`` pieces without padding.
        start_positions, end_positions, answer_types: ``[N]`` the targets.
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
        """From the columns of training TFRecords, each ``[N, …]``."""
        mask, segments = columns["input_mask"], columns["segment_ids"]
        ids = columns["input_ids"]
        return cls(
            ids.astype(np.uint16 if ids.max(initial=0) < 1 << 16 else np.int32),
            (mask - segments).sum(axis=1).astype(np.int32),
            mask.sum(axis=1).astype(np.int32),
            *(columns[name].reshape(-1).astype(np.int32) for name in TARGETS),
        )

    def digest(self) -> str:
        """SHA-256 over all of them."""
        return digest(getattr(self, f.name) for f in fields(self))

    def batch(self, rows: IntArray) -> tuple[dict[str, IntArray], dict[str, IntArray]]:
        """Inputs and targets of those windows, cut to the longest, rounded up."""
        longest = int(self.n_pieces[rows].max())
        length = min(-(-longest // LENGTH_STEP) * LENGTH_STEP, self.input_ids.shape[1])
        pos = np.arange(length)[None, :]
        mask = pos < self.n_pieces[rows, None]
        inputs: dict[str, IntArray] = {
            "input_ids": self.input_ids[rows, :length].astype(np.int32),
            "input_mask": mask.astype(np.int32),
            "segment_ids": (mask & (pos >= self.n_query[rows, None])).astype(np.int32),
        }
        targets: dict[str, IntArray] = {
            "start_logits": self.start_positions[rows].astype(np.int32),
            "end_logits": self.end_positions[rows].astype(np.int32),
            "type_logits": self.answer_types[rows].astype(np.int32),
        }
        return inputs, targets


def digest(arrays: Iterable[Any]) -> str:
    """SHA-256 over the bytes of ``arrays``."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(array.tobytes())
    return found.hexdigest()
