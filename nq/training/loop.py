"""The training loop: seeded, and resumable after an interruption.

The loss is BERT-Joint's: the mean of the cross entropies of start, end and type; in that of the
type, all windows of yes weigh as much as all of no. A model without a head for types has the loss
of transformers, the mean of start and end. A teacher adds another one
(``nq.training.distillation``).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from nq.errors import DamagedError, Error
from nq.inference.reduction import LOGITS
from nq.memo import Memo
from nq.records import AnswerType, IntArray
from nq.training.distillation import Distillation
from nq.training.job import (
    EVALUATE_EVERY,
    LOSS,
    PROGRESS,
    STEP,
    Curves,
    Figures,
    TrainConfig,
    measured,
)
from nq.training.windows import TrainingWindows, steps_after, total_steps

log = logging.getLogger(__name__)

BEST_WEIGHTS = "best_weights.npz"


class WarmupThenDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly to ``peak`` in ``warmup`` steps and falls linearly to 0 at step ``total``."""

    def __init__(self, peak: float, warmup: int, total: int) -> None:
        self.peak = peak
        self.warmup = warmup
        self.total = total

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32") + 1.0
        rising = step / max(1, self.warmup)
        falling = (self.total - step) / max(1, self.total - self.warmup)
        return self.peak * ops.maximum(0.0, ops.minimum(rising, falling))


class AdamW(keras.optimizers.AdamW):
    """AdamW of whole gradients, as torch has it.

    TensorFlow gives the gradient of an embedding table as a row for each piece of a batch. Keras
    would square the rows of a piece that occurs several times before it adds them up.
    """

    def apply(
        self,
        grads: Sequence[Any],
        trainable_variables: Any = None,
    ) -> None:
        whole = [one if one is None else tf.convert_to_tensor(one) for one in grads]
        super().apply(whole, trainable_variables)


class TypeLoss(keras.losses.Loss):
    """Computes the cross entropy of types; yes weighs as much as no in ``types`` of all windows."""

    def __init__(self, types: IntArray) -> None:
        super().__init__()
        self.weights = np.ones(len(AnswerType), np.float32)
        both = [AnswerType.YES, AnswerType.NO]
        counts = np.array([np.sum(types == kind) for kind in both])
        if counts.all():
            self.weights[both] = counts.mean() / counts

    def call(self, y_true: Any, y_pred: Any) -> Any:
        y_true = ops.cast(ops.reshape(y_true, (-1,)), "int32")
        losses = ops.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
        return losses * ops.take(self.weights, y_true)


def compile_for_training(
    model: keras.Model,
    config: TrainConfig,
    total_steps: int,
    types: IntArray,
    distillation: Distillation | None = None,
) -> None:
    """Compiles a model with AdamW, warm-up and decay to 0, and the mean of the losses.

    With a teacher it is a model of ``Distillation.student``; ``types`` are of all windows.
    """
    schedule = WarmupThenDecay(config.learning_rate, int(total_steps * config.warmup), total_steps)
    optimizer = AdamW(schedule, weight_decay=config.weight_decay, global_clipnorm=1.0, epsilon=1e-6)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    if config.precision == "float16":  # without loss scaling small gradients underflow
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    span = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    heads = [name for name in LOGITS if name in model.output]
    losses = {name: TypeLoss(types) if name == LOGITS[2] else span for name in heads}
    weights = {name: 1 / len(heads) for name in heads}
    if distillation:
        losses = losses | distillation.losses()
        weights = distillation.weights(weights)
    model.compile(optimizer=optimizer, loss=losses, loss_weights=weights, jit_compile=False)


@dataclass
class TrainingState:
    """The state of an unfinished training in a memo, with all variables and the best weights.

    All other fields are saved.
    """

    memo: Memo
    step: int = 0
    total: int = 0
    losses: Curves = field(default_factory=dict)
    evaluations: list[Figures] = field(default_factory=list)

    @property
    def best(self) -> Figures | None:
        """The first of the evaluations whose first figure is the highest."""
        return max(self.evaluations, key=_first_figure, default=None)

    def restore(self, variables: Sequence[Any]) -> None:
        """Assigns the saved values; a damaged state is logged, and replaced by the next one."""
        try:
            saved = self.memo.values(PROGRESS)
            arrays = self.memo.arrays(saved.pop("file"))
        except FileNotFoundError:
            return
        except DamagedError as error:
            log.warning("%s; the training starts again at its first step", error)
            return
        vars(self).update(saved)
        for variable, value in zip(variables, arrays.values(), strict=True):
            variable.assign(value)

    def save(self, variables: Sequence[Any]) -> None:
        """Saves the state with the values of all variables, completely or not at all."""
        name = f"step-{self.step}.npz"
        self._write(name, variables)
        saved = vars(self) | {"file": name}
        del saved["memo"]
        self.memo.write_values(PROGRESS, saved)
        for other in {*self.memo.names()} - {name, BEST_WEIGHTS}:
            self.memo.remove(other)

    def add(self, figures: Figures, model: keras.Model) -> None:
        """Adds an evaluation, and keeps the weights of the best one."""
        self.evaluations.append(figures)
        if self.best is figures:
            self._write(BEST_WEIGHTS, model.weights)

    def assign_best(self, model: keras.Model) -> None:
        """Gives the model the weights of the best evaluation; a damaged file is logged."""
        if not self.evaluations or self.best is self.evaluations[-1]:
            return
        try:
            arrays = self.memo.arrays(BEST_WEIGHTS)
        except (FileNotFoundError, DamagedError) as error:
            log.warning("%s; the model has the weights of the last step instead", error)
            return
        model.set_weights([*arrays.values()])

    def _write(self, name: str, variables: Sequence[Any]) -> None:
        arrays = {str(i): np.asarray(v.numpy()) for i, v in enumerate(variables)}
        self.memo.write_arrays(name, arrays)


def _first_figure(figures: Figures) -> float:
    return next(iter(measured(figures).values()))


def fit(
    model: keras.Model,
    windows: TrainingWindows,
    config: TrainConfig,
    state: TrainingState,
    on_step: Callable[[TrainingState], None] = lambda state: None,
    distillation: Distillation | None = None,
    measure: Callable[[], Figures] | None = None,
    every: int = EVALUATE_EVERY,
) -> None:
    """Trains a model in place, from the state of an interrupted training if there is one.

    ``measure`` evaluates the model on held-out questions after ``every`` steps and after the last
    one; the model gets the weights of the best evaluation in the end. ``on_step`` gets the state
    after each step and its evaluation. A loss that is not finite, or such a weight that would be
    evaluated or saved, is an ``Error``.
    """
    total = state.total = total_steps(len(windows), config)
    trained = distillation.student(model) if distillation else model
    compile_for_training(trained, config, total, windows.answer_types, distillation)
    trained.optimizer.build(trained.trainable_variables)
    variables = [*trained.variables, *trained.optimizer.variables]
    state.restore(variables)
    for rows in steps_after(state.step, windows.n_pieces, config):
        trained.reset_metrics()
        inputs, *parts = distillation.batch(windows, rows) if distillation else windows.batch(rows)
        own = ({name: part[name] for name in trained.output} for part in parts)
        logs = trained.train_on_batch(inputs, *own, return_dict=True)
        loss = float(logs["loss"])
        losses = {LOSS: loss} | (distillation.curves(logs) if distillation else {})
        for name, value in losses.items():
            state.losses.setdefault(name, []).append(value)
        state.step += 1
        is_last = state.step == total
        to_measure = measure is not None and (is_last or state.step % every == 0)
        to_save = is_last or state.step % config.save_every == 0
        weights = model.get_weights() if to_measure or to_save else []
        if not all(np.isfinite(value).all() for value in (loss, *weights)):
            raise Error(
                f"the training diverged in step {state.step} of {total}, loss {loss:.3g}: "
                f"choose a --learning-rate below {config.learning_rate:g} and another --output"
            )
        if measure and to_measure:
            state.add({STEP: state.step, **measure()}, model)
        on_step(state)
        if to_save:
            state.save(variables)
    state.assign_best(model)
