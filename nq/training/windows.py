"""Training windows in memory, their batches, and which of them each training step sees.

The windows are shuffled by a seed. Windows of similar length share a step, so that little is
computed on padding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, count, islice
from pathlib import Path

import numpy as np

from nq.formats.tfrecord import TARGETS, decode_records, raw_records, training_shapes
from nq.records import Columns, IntArray
from nq.training.job import TrainConfig

LENGTH_STEP = 64
READ_BATCH = 1024
BATCHES_SORTED_TOGETHER = 64


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
        mask = columns["input_mask"]
        segments = columns["segment_ids"]
        ids = columns["input_ids"]
        return cls(
            ids.astype(np.uint16 if ids.max(initial=0) < 1 << 16 else np.int32),
            (mask - segments).sum(axis=1).astype(np.int32),
            mask.sum(axis=1).astype(np.int32),
            *(columns[name].reshape(-1).astype(np.int32) for name in TARGETS),
        )

    def digest(self) -> str:
        total = hashlib.sha256()
        for f in fields(self):
            total.update(getattr(self, f.name).tobytes())
        return total.hexdigest()

    def batch(
        self,
        rows: IntArray,
    ) -> tuple[dict[str, IntArray], dict[str, IntArray]]:
        """Returns int32 inputs ``[B, L]`` and targets ``[B]`` of the windows ``rows``.

        L is the length of the longest of them, rounded up to a multiple of ``LENGTH_STEP``.
        """
        longest = int(self.n_pieces[rows].max())
        length = min(-(-longest // LENGTH_STEP) * LENGTH_STEP, self.input_ids.shape[1])
        targets = {
            "start_logits": self.start_positions[rows],
            "end_logits": self.end_positions[rows],
            "type_logits": self.answer_types[rows],
        }
        return self.inputs(rows, length), targets

    def inputs(
        self,
        rows: slice | IntArray,
        length: int,
    ) -> dict[str, IntArray]:
        """Returns the first positions of windows as int32 inputs ``[B, length]`` of a model."""
        pos = np.arange(length)[None, :]
        mask = pos < self.n_pieces[rows, None]
        inputs = {
            "input_ids": self.input_ids[rows, :length],
            "input_mask": mask,
            "segment_ids": mask & (pos >= self.n_query[rows, None]),
        }
        return {name: x.astype(np.int32) for name, x in inputs.items()}


def read_columns(shards: Sequence[Path], length: int) -> Columns:
    """Returns all training records of TFRecord files as one int32 array per column."""
    records = chain.from_iterable(map(raw_records, shards))
    parts = []
    while batch := list(islice(records, READ_BATCH)):
        parts.append(decode_records(batch, training_shapes(length)))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def total_steps(n_windows: int, config: TrainConfig) -> int:
    """Returns the number of steps of a training; ``ValueError`` if there is none."""
    steps = int(n_windows // config.batch_size * config.epochs)
    if not steps:
        raise ValueError(
            f"{config.epochs:g} epochs of {n_windows} training windows are no whole step of "
            f"{config.batch_size}: give more epochs, more data or a smaller batch size"
        )
    return steps


def steps_after(
    done: int,
    n_pieces: IntArray,
    config: TrainConfig,
) -> Iterator[IntArray]:
    """Returns the rows ``[B]`` of each step of a training behind the first ``done`` steps."""
    epochs = (batches(n_pieces, config.batch_size, epoch, config.seed) for epoch in count())
    return islice(chain.from_iterable(epochs), done, total_steps(len(n_pieces), config))


def batches(
    n_pieces: IntArray,
    batch_size: int,
    epoch: int,
    seed: int,
) -> list[IntArray]:
    """Returns the rows ``[batch_size]`` of each step of an epoch, by the pieces ``[N]`` of windows.

    Equal arguments give equal batches. The last rows, which do not fill a batch, are left out;
    they differ between epochs.
    """
    draw = np.random.default_rng([seed, epoch])
    order = draw.permutation(len(n_pieces))[: len(n_pieces) // batch_size * batch_size]
    size = batch_size * BATCHES_SORTED_TOGETHER
    steps: list[IntArray] = []
    for i in range(0, len(order), size):
        chunk = order[i : i + size]
        chunk = chunk[np.argsort(n_pieces[chunk], kind="stable")]
        steps += np.split(chunk, len(chunk) // batch_size)
    return [steps[i] for i in draw.permutation(len(steps))]
