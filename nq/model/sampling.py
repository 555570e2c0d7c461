"""Windows -> the rows of each training step, shuffled by a seed.

Windows of similar length share a step, so that little is computed on padding; with
``TrainConfig.group`` above 1 windows of one question stay together.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nq.config import TrainConfig
from nq.model.training_windows import TrainingWindows
from nq.records import AnswerType, IntArray

BATCHES_SORTED_TOGETHER = 64


class Sampling:
    """Which windows each step of a training sees.

    ``total`` is the number of steps.
    """

    def __init__(self, windows: TrainingWindows, config: TrainConfig) -> None:
        self.windows, self.config = windows, config
        self.groups = len(windows)
        if config.group > 1:
            self.questions = windows.questions()
            self.is_positive = windows.answer_types != AnswerType.UNKNOWN
            answered = np.unique(self.questions[self.is_positive])
            unanswered = len(np.unique(self.questions)) - len(answered)
            self.groups = int(self.is_positive.sum()) + unanswered
        self.per_epoch = steps_per_epoch(self.groups, config.batch_size // config.group)
        self.total = int(self.per_epoch * config.epochs)

    def after(self, done: int) -> Iterator[tuple[int, IntArray]]:
        """Step (from 0) and rows of each step that is still to do."""
        for epoch in range(done // self.per_epoch, -(-self.total // self.per_epoch)):
            for i, rows in enumerate(self._epoch(epoch)):
                step = epoch * self.per_epoch + i
                if done <= step < self.total:
                    yield step, rows

    def _epoch(self, epoch: int) -> list[IntArray]:
        config, groups = self.config, None
        if config.group > 1:
            groups = drawn_groups(
                self.questions, self.is_positive, config.group, epoch, config.seed
            )
        return batches(self.windows.n_pieces, config.batch_size, epoch, config.seed, groups)


def batches(
    n_pieces: IntArray, batch_size: int, epoch: int, seed: int, groups: IntArray | None = None
) -> list[IntArray]:
    """The rows of each step of one epoch: shuffled, then windows of like length together.

    The same for equal arguments; the last rows that fill no batch are left out, other ones
    in each epoch.

    Args:
        n_pieces: ``[N]`` of each window.
        batch_size: windows in a step.
        epoch, seed: what is drawn depends on these.
        groups: ``[M, G]`` rows that stay together, next to each other; each row by itself
            if ``None``.
    """
    draw = np.random.default_rng([seed, epoch])
    groups = np.arange(len(n_pieces))[:, None] if groups is None else groups
    batch_size //= groups.shape[1]
    longest = n_pieces[groups].max(axis=1)
    order = draw.permutation(len(groups))
    size = batch_size * BATCHES_SORTED_TOGETHER
    found: list[IntArray] = []
    for i in range(0, len(order), size):
        chunk = order[i : i + size]
        chunk = chunk[: len(chunk) // batch_size * batch_size]
        chunk = chunk[np.argsort(longest[chunk], kind="stable")]
        found += np.split(chunk, len(chunk) // batch_size) if len(chunk) else []
    return [groups[found[i]].reshape(-1) for i in draw.permutation(len(found))]


def drawn_groups(
    questions: IntArray, is_positive: IntArray, size: int, epoch: int, seed: int
) -> IntArray:
    """Windows of one question each, another draw in each epoch.

    Every window with an answer leads a group, and one window of each question without any. The
    others of a group are drawn from the question's windows; where these are too few, the group
    repeats itself.

    Args:
        questions: ``[N]`` the question of each window.
        is_positive: ``[N]`` whether a window holds the answer.
        size: windows in a group.
        epoch, seed: what is drawn depends on these.

    Returns:
        ``[M, size]`` rows, the leader first.
    """
    draw = np.random.default_rng([seed, epoch, size])
    order = np.argsort(questions, kind="stable")
    ends = np.cumsum(np.unique(questions, return_counts=True)[1])
    groups = []
    for rows in np.split(order, ends[:-1]):
        for leader in rows[is_positive[rows]] if is_positive[rows].any() else draw.choice(rows, 1):
            others = draw.permutation(rows[rows != leader])[: size - 1]
            groups.append(np.pad(np.append(leader, others), (0, size - 1 - len(others)), "wrap"))
    return np.array(groups).reshape(-1, size)


def steps_per_epoch(n_groups: int, batch_size: int) -> int:
    """How many full batches ``batches`` makes of so many windows, or groups of them."""
    size = batch_size * BATCHES_SORTED_TOGETHER
    return n_groups // size * BATCHES_SORTED_TOGETHER + n_groups % size // batch_size
