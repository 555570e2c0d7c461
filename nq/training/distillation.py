"""Knowledge distillation: a student learns from labels and from a teacher's probabilities.

Hinton, Vinyals and Dean 2015, https://arxiv.org/abs/1503.02531; for spans as in DistilBERT, Sanh et
al. 2019, https://arxiv.org/abs/1910.01108. With w the weight of the teacher, T the temperature, and
means over start, end and type:

loss      = (1 - w) * hard loss + w * soft loss
hard loss = mean of the cross entropies of the labels; 0 for a window without labels
soft loss = T² * mean of the cross entropies of softmax(teacher / T) and softmax(student / T)

The soft loss exceeds T² * KL(teacher || student) by the teacher's entropy, a constant. It leaves
out padding, where neither model places an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from nq.inference.reduction import LOGITS
from nq.records import UNLABELLED, AnswerType, Columns, FloatArray, IntArray
from nq.training.config import DistillationConfig
from nq.training.job import PARTS
from nq.training.windows import TrainingWindows

SOFT = "_soft"
"""Suffix of the outputs that are compared with the teacher."""
EXCLUDED = -1e9
"""Logit of a position that the softmax leaves out."""


class SoftCrossEntropy(keras.losses.Loss):
    """Computes T² times the cross entropy of teacher's and student's probabilities, ``[B]``.

    ``y_true`` ``[B, n]`` are the teacher's log probabilities, -inf where there are none, ``y_pred``
    ``[B, n]`` the student's logits.
    """

    def __init__(self, temperature: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature

    def call(self, y_true: Any, y_pred: Any) -> Any:
        probabilities = ops.softmax(y_true / self.temperature, axis=-1)
        logits = ops.where(y_true > -np.inf, y_pred / self.temperature, EXCLUDED)
        log_probabilities = ops.log_softmax(logits, axis=-1)
        return -(self.temperature**2) * ops.sum(probabilities * log_probabilities, axis=-1)


@dataclass(frozen=True, eq=False)
class SoftTargets:
    """The teacher's log probabilities of the windows of a student, in memory.

    They are float16: the large probabilities have logarithms near 0, where it is precise, and no
    probability differs by more than 0.0002.

    Args:
        first: ``[N + 1]`` index of each window's first piece, then ``P``.
        columns: ``start_logits`` and ``end_logits`` ``[P]`` for all pieces of all windows, -inf for
            a separator that the teacher does not have; ``type_logits`` ``[N, 5]``.
    """

    first: IntArray
    columns: Columns

    @classmethod
    def empty(cls, windows: TrainingWindows) -> SoftTargets:
        """Returns arrays for ``fill``."""
        first = np.concatenate([[0], np.cumsum(windows.n_pieces, dtype=np.int64)])
        sizes = (first[-1], first[-1], (len(windows), len(AnswerType)))
        arrays = (np.empty(size, np.float16) for size in sizes)
        return cls(first, dict(zip(LOGITS, arrays, strict=True)))

    def fill(self, part: Columns, rows: slice) -> None:
        """Copies the log probabilities of the windows ``rows``."""
        pieces = slice(self.first[rows.start], self.first[rows.stop])
        for name, place in zip(LOGITS, (pieces, pieces, rows), strict=True):
            self.columns[name][place] = part[name]

    def batch(self, rows: IntArray, length: int) -> dict[str, FloatArray]:
        """Returns the log probabilities of the windows ``rows`` in float32, -inf for padding.

        Those of start and end are ``[B, length]``.
        """
        piece = self.first[rows, None] + np.arange(length)[None]
        inside = piece < self.first[rows + 1, None]
        piece = np.where(inside, piece, 0)
        start, end = (np.where(inside, self.columns[name][piece], -np.inf) for name in LOGITS[:2])
        batch = start, end, self.columns[LOGITS[2]][rows]
        return {name: x.astype(np.float32) for name, x in zip(LOGITS, batch, strict=True)}


@dataclass(frozen=True, eq=False)
class Distillation:
    """The losses by a teacher's outputs; without a teacher's type head labels alone teach types."""

    config: DistillationConfig
    teacher: SoftTargets
    has_types: bool = True

    @property
    def heads(self) -> tuple[str, ...]:
        """The outputs for which the teacher has probabilities."""
        return LOGITS if self.has_types else LOGITS[:2]

    def student(self, model: keras.Model) -> keras.Model:
        """Returns a model with the layers of another one and more outputs, with equal values."""
        soft = {
            f"{name}{SOFT}": keras.layers.Identity(name=f"{name}{SOFT}")(model.output[name])
            for name in self.heads
        }
        return keras.Model(model.input, {**model.output, **soft}, name=model.name)

    def losses(self) -> dict[str, keras.losses.Loss]:
        """Returns the soft loss of each output that the teacher teaches."""
        return {f"{name}{SOFT}": SoftCrossEntropy(self.config.temperature) for name in self.heads}

    def weights(self, hard: Mapping[str, float]) -> dict[str, float]:
        """Returns the weights of all losses; ``hard`` are the weights without a teacher."""
        share = self.config.teacher_weight
        soft = {f"{name}{SOFT}": share / len(self.heads) for name in self.heads}
        return {**{name: weight * (1 - share) for name, weight in hard.items()}, **soft}

    def batch(
        self, windows: TrainingWindows, rows: IntArray
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Returns inputs, targets and weights of the windows ``rows``, by input and output."""
        model_inputs, labels = windows.batch(rows)
        labelled = (labels["type_logits"] != UNLABELLED).astype(np.float32)
        labels["type_logits"] = np.maximum(labels["type_logits"], 0)
        taught = self.teacher.batch(rows, model_inputs["input_ids"].shape[1])
        soft = {f"{name}{SOFT}": taught[name] for name in self.heads}
        weights = {**dict.fromkeys(labels, labelled), **dict.fromkeys(soft, np.ones_like(labelled))}
        return model_inputs, {**labels, **soft}, weights

    def curves(self, logs: Mapping[str, float]) -> dict[str, float]:
        """Returns the hard and the soft loss of a step from Keras' logs of it."""
        hard = [logs[f"{name}_loss"] for name in LOGITS]
        soft = [logs[f"{name}{SOFT}_loss"] for name in self.heads]
        return dict(zip(PARTS, map(float, (np.mean(hard), np.mean(soft))), strict=True))
