"""The training loop: seeded, and resumable after an interruption."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np

from nq import storage
from nq.config import TrainConfig
from nq.errors import DamagedError
from nq.model.shapes import check_length
from nq.training.distillation import Distillation
from nq.training.held_out import Evaluations
from nq.training.job import LOSS, Curves, Figures
from nq.training.optimizer import compile_for_training
from nq.training.windows import TrainingWindows, digest, steps_after, steps_per_epoch

log = logging.getLogger(__name__)

STATE, PROGRESS = "training_state.npz", "training_state.json"
STATE_FOLDER = "training"


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
