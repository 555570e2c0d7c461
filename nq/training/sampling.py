"""Which windows each training step sees, shuffled by a seed.

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
    """The batches of a training; ``total`` is the number of its steps."""

    def __init__(self, windows: TrainingWindows, config: TrainConfig) -> None:
        self.windows, self.config = windows, config
        self.per_epoch = steps_per_epoch(len(windows), config.batch_size)
        self.total = int(self.per_epoch * config.epochs)

    def steps_after(self, done: int) -> Iterator[tuple[int, IntArray]]:
        """Yields the number of each step from ``done`` (counted from 0) and its rows ``[B]``."""
        size, seed = self.config.batch_size, self.config.seed
        for epoch in range(done // self.per_epoch, -(-self.total // self.per_epoch)):
            rows_of_steps = batches(self.windows.n_pieces, size, epoch, seed)
            for step, rows in enumerate(rows_of_steps, start=epoch * self.per_epoch):
                if done <= step < self.total:
                    yield step, rows


def batches(n_pieces: IntArray, batch_size: int, epoch: int, seed: int) -> list[IntArray]:
    """Returns the rows ``[batch_size]`` of each step of one epoch.

    Equal arguments give equal batches. The last rows, which do not fill a batch, are left out;
    they differ between epochs.

    Args:
        n_pieces: ``[N]`` pieces of each window.
        batch_size: windows in a step.
        epoch: number of the epoch, from 0.
        seed: seed of the shuffling.
    """
    draw = np.random.default_rng([seed, epoch])
    order = draw.permutation(len(n_pieces))
    size = batch_size * BATCHES_SORTED_TOGETHER
    steps: list[IntArray] = []
    for i in range(0, len(order), size):
        chunk = order[i : i + size]
        chunk = chunk[: len(chunk) // batch_size * batch_size]
        chunk = chunk[np.argsort(n_pieces[chunk], kind="stable")]
        steps += np.split(chunk, len(chunk) // batch_size) if len(chunk) else []
    return [steps[i] for i in draw.permutation(len(steps))]


def steps_per_epoch(n_windows: int, batch_size: int) -> int:
    """Returns the number of full batches that ``batches`` makes of ``n_windows`` windows."""
    size = batch_size * BATCHES_SORTED_TOGETHER
    return n_windows // size * BATCHES_SORTED_TOGETHER + n_windows % size // batch_size
