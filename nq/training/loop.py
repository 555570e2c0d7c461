"""The training loop: seeded, and resumable after an interruption.

The loss is BERT-Joint's: the mean of the cross entropies of start, end and type. A teacher adds
another one (``nq.training.distillation``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from nq import storage
from nq.config import TrainConfig
from nq.errors import DamagedError
from nq.model.shapes import check_length
from nq.storage import TRAINING
from nq.training.curves import LOSS, PARTS, Curves, Figures
from nq.training.distillation import Distillation
from nq.training.held_out import Evaluations
from nq.training.levels import LayerwiseAdamW, freeze
from nq.training.sampling import Sampling
from nq.training.windows import TrainingWindows, digest

log = logging.getLogger(__name__)

STATE, PROGRESS = "training_state.npz", "training_state.json"
STATE_FOLDER = "training"
LOSSES = ("start_logits", "end_logits", "type_logits")


class WarmupThenDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly to ``peak`` in ``warmup`` steps and falls linearly to 0 at step ``total``."""

    def __init__(self, peak: float, warmup: int, total: int) -> None:
        self.peak, self.warmup, self.total = peak, warmup, total

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32") + 1.0
        rising = step / max(1, self.warmup)
        falling = (self.total - step) / max(1, self.total - self.warmup)
        return self.peak * ops.maximum(0.0, ops.minimum(rising, falling))

    def get_config(self) -> dict[str, Any]:
        return {"peak": self.peak, "warmup": self.warmup, "total": self.total}


def compile_for_training(
    model: keras.Model,
    config: TrainConfig,
    total_steps: int,
    distillation: Distillation | None = None,
) -> None:
    """Compiles a model with AdamW, warm-up and decay, and the mean of the three losses.

    Args:
        model: of ``joint.build``; with a teacher, of ``Distillation.student``.
        config: settings of the training.
        total_steps: after which the learning rate is 0.
        distillation: the teacher's losses, if there is a teacher.

    Raises:
        ValueError: more layers are to be frozen than the model has.
    """
    n_layers = model.get_layer("embeddings").config.layer_sets
    freeze(model, n_layers, config.frozen_layers)
    schedule = WarmupThenDecay(config.learning_rate, int(total_steps * config.warmup), total_steps)
    options = {"weight_decay": config.weight_decay, "global_clipnorm": 1.0, "epsilon": 1e-6}
    if config.layer_decay < 1:
        optimizer = LayerwiseAdamW(n_layers, config.layer_decay, schedule, **options)
    else:
        optimizer = keras.optimizers.AdamW(schedule, **options)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    if config.precision == "float16":  # without loss scaling small gradients underflow
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    losses = {n: keras.losses.SparseCategoricalCrossentropy(from_logits=True) for n in LOSSES}
    weights = {n: 1 / len(LOSSES) for n in LOSSES}
    if distillation:
        losses, weights = losses | distillation.losses(), distillation.weights(weights)
    model.compile(optimizer=optimizer, loss=losses, loss_weights=weights, jit_compile=False)


def identity(model: keras.Model, windows: TrainingWindows, config: TrainConfig) -> dict[str, Any]:
    """Returns all that the result of a training depends on.

    An interrupted training is resumed if its identity is the same. The model's weights must be
    the initial ones.
    """
    start = digest(variable.numpy() for variable in model.weights)
    return {**config.to_dict(), "windows": windows.digest(), "start": start}


@dataclass
class Progress:
    """What a training has done.

    Args:
        step: number of steps.
        losses: of these steps.
        evaluations: on held-out questions; empty without any.
    """

    step: int = 0
    losses: Curves = field(default_factory=dict)
    evaluations: list[Figures] = field(default_factory=list)


@dataclass(frozen=True)
class TrainingState:
    """The variables of an unfinished training in a folder.

    Args:
        folder: folder of the files, which is created if necessary.
        identity: see ``identity``; the state of another training is ignored.
    """

    folder: Path
    identity: dict[str, Any]

    def restore(self, variables: Sequence[Any]) -> Progress:
        """Assigns the saved values, and returns what has been done.

        A state that is damaged is logged and ignored; the next one replaces it.
        """
        try:
            saved = storage.read_json(self.folder / PROGRESS)
            if saved["settings"] != self.identity:
                return Progress()
            arrays = storage.read_arrays(self.folder / saved["file"])
            values = [arrays[str(i)] for i in range(len(variables))]
            losses = {LOSS: list(saved["losses"])}
            losses |= {name: list(saved[name]) for name in PARTS if name in saved}
        except FileNotFoundError:
            return Progress()
        except (DamagedError, LookupError) as error:
            log.warning("%s; the training starts again at its first step", error)
            return Progress()
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        return Progress(int(saved["step"]), losses, saved.get("evaluations", []))

    def save(self, variables: Sequence[Any], done: Progress) -> None:
        """Saves the values of all variables after some steps, completely or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name, losses = f"{done.step}-{STATE}", done.losses
        arrays = {str(i): np.asarray(v.numpy()) for i, v in enumerate(variables)}
        storage.write_arrays(self.folder / name, arrays)
        saved: dict[str, Any] = {"settings": self.identity, "file": name, "step": done.step}
        saved |= {"losses": losses[LOSS], "evaluations": done.evaluations}
        saved |= {part: losses[part] for part in PARTS if part in losses}
        storage.write_json(self.folder / PROGRESS, saved)
        for path in self.folder.glob(f"*-{STATE}"):
            if path.name != name and TRAINING.is_file(f"{STATE_FOLDER}/{path.name}"):
                path.unlink()


def fit(
    model: keras.Model,
    windows: TrainingWindows,
    config: TrainConfig,
    state: TrainingState,
    on_step: Callable[[Curves, int], None] = lambda losses, total: None,
    distillation: Distillation | None = None,
    evaluations: Evaluations | None = None,
) -> Curves:
    """Trains a model in place, from the state of an interrupted training if there is one.

    Args:
        model: the model with its initial weights.
        windows, config: what it is trained on, and how.
        state: where the variables are saved and restored.
        on_step: called after each step with the losses so far and the total number of steps.
        distillation: the teacher's part, if there is a teacher.
        evaluations: on held-out questions; the model gets the weights of the best one in the end.

    Returns:
        The losses of every step, including those before an interruption.

    Raises:
        ValueError: the windows do not fill one batch or are too long for the model, or more
            layers are to be frozen than it has.
    """
    check_length(model.get_layer("embeddings").config, windows.input_ids.shape[1])
    sampling = Sampling(windows, config)
    if sampling.total < 1:
        raise ValueError(
            f"{len(windows)} training windows do not fill one batch of {config.batch_size}"
        )
    if distillation:
        model = distillation.student(model)
    compile_for_training(model, config, sampling.total, distillation)
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    done = state.restore(variables)
    if evaluations:
        evaluations.done = done.evaluations
    for step, rows in sampling.steps_after(done.step):
        model.reset_metrics()
        batch = distillation.batch(windows, rows) if distillation else windows.batch(rows)
        logs = model.train_on_batch(*batch, return_dict=True)
        parts = distillation.curves(logs) if distillation else {}
        for name, value in {LOSS: float(logs["loss"]), **parts}.items():
            done.losses.setdefault(name, []).append(value)
        done.step = step + 1
        on_step(done.losses, sampling.total)
        if evaluations:
            evaluations.after(done.step, sampling.total)
        if done.step % config.save_every == 0:
            state.save(variables, done)
    if evaluations:
        evaluations.assign_best()
    return done.losses
