"""Windows -> the rows of each training step, shuffled by a seed.

Windows of similar length share a step, so that little is computed on padding.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nq.config import TrainConfig
from nq.records import IntArray
from nq.training.windows import TrainingWindows

BATCHES_SORTED_TOGETHER = 64


class Sampling:
    """Which windows each step of a training sees.

    ``total`` is the number of steps.
    """

    def __init__(self, windows: TrainingWindows, config: TrainConfig) -> None:
        self.windows, self.config = windows, config
        self.per_epoch = steps_per_epoch(len(windows), config.batch_size)
        self.total = int(self.per_epoch * config.epochs)

    def after(self, done: int) -> Iterator[tuple[int, IntArray]]:
        """Step (from 0) and rows of each step that is still to do."""
        for epoch in range(done // self.per_epoch, -(-self.total // self.per_epoch)):
            for i, rows in enumerate(self._epoch(epoch)):
                step = epoch * self.per_epoch + i
                if done <= step < self.total:
                    yield step, rows

    def _epoch(self, epoch: int) -> list[IntArray]:
        config = self.config
        return batches(self.windows.n_pieces, config.batch_size, epoch, config.seed)


def batches(n_pieces: IntArray, batch_size: int, epoch: int, seed: int) -> list[IntArray]:
    """The rows of each step of one epoch: shuffled, then windows of like length together.

    The same for equal arguments; the last rows that fill no batch are left out, other ones
    in each epoch.

    Args:
        n_pieces: ``[N]`` of each window.
        batch_size: windows in a step.
        epoch, seed: what is drawn depends on these.
    """
    draw = np.random.default_rng([seed, epoch])
    order = draw.permutation(len(n_pieces))
    size = batch_size * BATCHES_SORTED_TOGETHER
    found: list[IntArray] = []
    for i in range(0, len(order), size):
        chunk = order[i : i + size]
        chunk = chunk[: len(chunk) // batch_size * batch_size]
        chunk = chunk[np.argsort(n_pieces[chunk], kind="stable")]
        found += np.split(chunk, len(chunk) // batch_size) if len(chunk) else []
    return [found[i] for i in draw.permutation(len(found))]


def steps_per_epoch(n_windows: int, batch_size: int) -> int:
    """How many full batches ``batches`` makes of so many windows."""
    size = batch_size * BATCHES_SORTED_TOGETHER
    return n_windows // size * BATCHES_SORTED_TOGETHER + n_windows % size // batch_size
