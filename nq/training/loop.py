"""The training loop: seeded, and resumable after an interruption.

The loss is BERT-Joint's: the mean of the cross entropies of start, end and type. A teacher adds
another one (``nq.training.distillation``).

The weights of a model have levels: level 0 has the embeddings and the relative biases, level i + 1
layer i of the encoder, and the level above the last layer the heads. The lower ones may be trained
more slowly, or not at all.
"""

from __future__ import annotations

import dataclasses
import logging
import re
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
from nq.inference.reduction import LOGITS
from nq.model.shapes import check_length
from nq.training.distillation import Distillation
from nq.training.held_out import Evaluations
from nq.training.job import LOSS, Curves, Figures
from nq.training.windows import TrainingWindows, digest, steps_after, steps_per_epoch

log = logging.getLogger(__name__)

STATE, PROGRESS = "training_state.npz", "training_state.json"
STATE_FOLDER = "training"


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


def level(path: str, n_layers: int) -> int:
    """Returns the level of a layer or weight of a model by its path.

    >>> [level(p, 12) for p in ("embeddings/word_embeddings", "layer_3_qkv/kernel", "pooler/bias")]
    [0, 4, 13]
    """
    layer = re.match(r"layer_(\d+)_", path)
    if layer:
        return int(layer[1]) + 1
    return 0 if path.startswith(("embeddings", "relative_bias")) else n_layers + 1


class LayerwiseAdamW(keras.optimizers.AdamW):
    """AdamW whose learning rate falls by a factor from each level to the one below it.

    Clark et al. 2020, https://arxiv.org/abs/2003.10555. The weight decay has the full rate.
    """

    def __init__(self, n_layers: int, layer_decay: float, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.n_layers, self.layer_decay = n_layers, layer_decay

    def build(self, variables: Sequence[Any]) -> None:
        super().build(variables)
        top = self.n_layers + 1
        levels = [level(variable.path, self.n_layers) for variable in variables]
        self._factors = [self.layer_decay ** (top - n) for n in levels]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        factor = self._factors[self._get_variable_index(variable)]
        super().update_step(gradient, variable, learning_rate * factor)


def compile_for_training(
    model: keras.Model,
    config: TrainConfig,
    total_steps: int,
    distillation: Distillation | None = None,
) -> None:
    """Compiles a model with AdamW, warm-up and decay to 0, and the mean of the losses.

    With a teacher the model is one of ``Distillation.student``.
    """
    n_layers = model.get_layer("embeddings").config.layer_sets
    if config.frozen_layers > n_layers:
        raise ValueError(
            f"frozen_layers {config.frozen_layers} is beyond the model's {n_layers} layers; choose "
            f"at most {n_layers}"
        )
    for layer in model.layers:
        if config.frozen_layers and level(layer.name, n_layers) <= config.frozen_layers:
            layer.trainable = False
    schedule = WarmupThenDecay(config.learning_rate, int(total_steps * config.warmup), total_steps)
    options = {"weight_decay": config.weight_decay, "global_clipnorm": 1.0, "epsilon": 1e-6}
    if config.layer_decay < 1:
        optimizer = LayerwiseAdamW(n_layers, config.layer_decay, schedule, **options)
    else:
        optimizer = keras.optimizers.AdamW(schedule, **options)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    if config.precision == "float16":  # without loss scaling small gradients underflow
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    losses = {n: keras.losses.SparseCategoricalCrossentropy(from_logits=True) for n in LOGITS}
    weights = {n: 1 / len(LOGITS) for n in LOGITS}
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
    """The number of completed steps, their losses, and the evaluations on held-out questions."""

    step: int = 0
    losses: Curves = field(default_factory=dict)
    evaluations: list[Figures] = field(default_factory=list)


@dataclass(frozen=True)
class TrainingState:
    """The variables of an unfinished training in a folder; that of another identity is ignored."""

    folder: Path
    identity: dict[str, Any]

    def restore(self, variables: Sequence[Any]) -> Progress:
        """Assigns the saved values, and returns the progress.

        A state that is damaged is logged and ignored; the next one replaces it.
        """
        try:
            saved = storage.read_json(self.folder / PROGRESS)
            if saved["settings"] != self.identity:
                return Progress()
            arrays = storage.read_arrays(self.folder / saved["file"])
            values = [arrays[str(i)] for i in range(len(variables))]
            progress = Progress(**saved["progress"])
        except FileNotFoundError:
            return Progress()
        except (DamagedError, LookupError) as error:
            log.warning("%s; the training starts again at its first step", error)
            return Progress()
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        return progress

    def save(self, variables: Sequence[Any], progress: Progress) -> None:
        """Saves the values of all variables after some steps, completely or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{progress.step}-{STATE}"
        arrays = {str(i): np.asarray(v.numpy()) for i, v in enumerate(variables)}
        storage.write_arrays(self.folder / name, arrays)
        saved = {"settings": self.identity, "file": name, "progress": dataclasses.asdict(progress)}
        storage.write_json(self.folder / PROGRESS, saved)
        for path in self.folder.glob(f"*-{STATE}"):
            if path.name != name and path.name.split("-")[0].isdecimal():
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

    It gets the weights of the best of the evaluations in the end. ``on_step`` is called after each
    step with the losses so far and the total number of steps.

    Returns:
        The losses of every step, including those before an interruption.
    """
    check_length(model.get_layer("embeddings").config, windows.input_ids.shape[1])
    total = int(steps_per_epoch(len(windows), config.batch_size) * config.epochs)
    if total < 1:
        raise ValueError(
            f"{len(windows)} training windows do not fill one batch of {config.batch_size}"
        )
    if distillation:
        model = distillation.student(model)
    compile_for_training(model, config, total, distillation)
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    progress = state.restore(variables)
    if evaluations:
        evaluations.done = progress.evaluations
    for rows in steps_after(progress.step, windows.n_pieces, config):
        model.reset_metrics()
        batch = distillation.batch(windows, rows) if distillation else windows.batch(rows)
        logs = model.train_on_batch(*batch, return_dict=True)
        parts = distillation.curves(logs) if distillation else {}
        for name, value in {LOSS: float(logs["loss"]), **parts}.items():
            progress.losses.setdefault(name, []).append(value)
        progress.step += 1
        on_step(progress.losses, total)
        if evaluations:
            evaluations.after(progress.step, total)
        if progress.step % config.save_every == 0:
            state.save(variables, progress)
    if evaluations:
        evaluations.assign_best()
    return progress.losses
