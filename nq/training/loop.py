"""Training: windows with targets -> weights, resumable and seeded.

The loss is BERT-Joint's: the mean of three cross entropies, of start, end and type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from nq.config import TrainConfig
from nq.model.joint import check_length
from nq.training.sampling import Sampling
from nq.training.windows import TrainingWindows, digest

STATE, PROGRESS = "training_state.npz", "training_state.json"
LOSSES = ("start_logits", "end_logits", "type_logits")


class WarmupThenDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly to ``peak`` in ``warmup`` steps, then falls linearly to 0 at ``total``."""

    def __init__(self, peak: float, warmup: int, total: int) -> None:
        self.peak, self.warmup, self.total = peak, warmup, total

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32") + 1.0
        rising = step / max(1, self.warmup)
        falling = (self.total - step) / max(1, self.total - self.warmup)
        return self.peak * ops.maximum(0.0, ops.minimum(rising, falling))

    def get_config(self) -> dict[str, Any]:
        return {"peak": self.peak, "warmup": self.warmup, "total": self.total}


def compile_for_training(model: keras.Model, config: TrainConfig, total_steps: int) -> None:
    """AdamW with warm-up and decay, and the three-way loss."""
    schedule = WarmupThenDecay(config.learning_rate, int(total_steps * config.warmup), total_steps)
    optimizer = keras.optimizers.AdamW(
        schedule, weight_decay=config.weight_decay, global_clipnorm=1.0, epsilon=1e-6
    )
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    if config.precision == "float16":  # small gradients would vanish
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(
        optimizer=optimizer,
        loss={n: keras.losses.SparseCategoricalCrossentropy(from_logits=True) for n in LOSSES},
        loss_weights={n: 1 / len(LOSSES) for n in LOSSES},
        jit_compile=False,
    )


def identity(model: keras.Model, windows: TrainingWindows, config: TrainConfig) -> dict[str, Any]:
    """All that a training depends on; an equal one is gone on with where it was interrupted."""
    start = digest(variable.numpy() for variable in model.weights)
    return {**config.to_dict(), "windows": windows.digest(), "start": start}


def train(
    model: keras.Model,
    windows: TrainingWindows,
    config: TrainConfig,
    folder: Path,
    on_step: Callable[[int, int, float], None] = lambda step, total, loss: None,
) -> list[float]:
    """Trains, going on from the state that an interrupted run of the same ``identity`` left.

    Args:
        model: a fresh or initialised model; trained in place.
        windows: what to train on.
        config: how.
        folder: where the state to resume from is kept.
        on_step: called with the step (from 1), the number of steps and the loss.

    Returns:
        The loss of every step, those before an interruption included.

    Raises:
        ValueError: there are fewer windows than one batch, or they are too long for the model.
    """
    check_length(model.get_layer("embeddings").config, windows.input_ids.shape[1])
    sampling = Sampling(windows, config)
    if sampling.total < 1:
        raise ValueError(
            f"{len(windows)} training windows do not fill one batch of {config.batch_size}"
        )
    same = identity(model, windows, config)
    compile_for_training(model, config, sampling.total)
    model.optimizer.build(model.trainable_variables)
    state = _State(folder, model, same)
    done, losses = state.restore()
    for step, rows in sampling.after(done):
        model.reset_metrics()
        logs = model.train_on_batch(*windows.batch(rows), return_dict=True)
        losses.append(float(logs["loss"]))
        on_step(step + 1, sampling.total, losses[-1])
        if (step + 1) % config.save_every == 0:
            state.save(step + 1, losses)
    return losses


class _State:
    """All variables of a training, on disk, written whole or not at all."""

    def __init__(self, folder: Path, model: keras.Model, settings: Mapping[str, Any]) -> None:
        self.folder, self.settings = folder, dict(settings)
        self.variables: Sequence[Any] = [*model.variables, *model.optimizer.variables]

    def restore(self) -> tuple[int, list[float]]:
        """Steps done and their losses; 0 and none where there is no fitting state."""
        progress = self.folder / PROGRESS
        if not progress.is_file():
            return 0, []
        saved = json.loads(progress.read_text(encoding="utf-8"))
        if saved["settings"] != self.settings:
            return 0, []
        with np.load(self.folder / saved["file"]) as arrays:
            for i, variable in enumerate(self.variables):
                variable.assign(arrays[str(i)])
        return int(saved["step"]), list(saved["losses"])

    def save(self, step: int, losses: Sequence[float]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{step}-{STATE}"
        with open(self.folder / name, "wb") as file:
            arrays = {str(i): np.asarray(v.numpy()) for i, v in enumerate(self.variables)}
            np.savez(file, allow_pickle=False, **arrays)
        saved = {"settings": self.settings, "file": name, "step": step, "losses": list(losses)}
        temporary = self.folder / (PROGRESS + ".tmp")
        temporary.write_text(json.dumps(saved), encoding="utf-8")
        temporary.replace(self.folder / PROGRESS)
        for old in self.folder.glob(f"*-{STATE}"):
            if old.name != name:
                old.unlink()
