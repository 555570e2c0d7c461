"""Training: windows with targets -> weights, resumable and seeded.

The loss is BERT-Joint's: the mean of three cross entropies, of start, end and type. Windows
of similar length share a step, so that little is computed on padding.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from nq.config import TrainConfig
from nq.model.data import TARGETS
from nq.model.joint import check_length
from nq.records import IntArray

LENGTH_STEP = 64
BATCHES_SORTED_TOGETHER = 64
STATE, PROGRESS = "training_state.npz", "training_state.json"
LOSSES = ("start_logits", "end_logits", "type_logits")


@dataclass(frozen=True, eq=False)
class TrainingWindows:
    """All windows to train on, kept compact.

    Args:
        input_ids: ``[N, L]`` unsigned, zero padded.
        n_query: ``[N]`` pieces of segment 0.
        n_pieces: ``[N]`` pieces without padding.
        start_positions, end_positions, answer_types: ``[N]`` the targets.
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
        """From the columns of training TFRecords, each ``[N, …]``."""
        mask, segments = columns["input_mask"], columns["segment_ids"]
        ids = columns["input_ids"]
        return cls(
            ids.astype(np.uint16 if ids.max(initial=0) < 1 << 16 else np.int32),
            (mask - segments).sum(axis=1).astype(np.int32),
            mask.sum(axis=1).astype(np.int32),
            *(columns[name].reshape(-1).astype(np.int32) for name in TARGETS),
        )

    def digest(self) -> str:
        """SHA-256 over all of them."""
        return _digest(getattr(self, f.name) for f in fields(self))

    def batch(self, rows: IntArray) -> tuple[dict[str, IntArray], dict[str, IntArray]]:
        """Inputs and targets of those windows, cut to the longest, rounded up."""
        longest = int(self.n_pieces[rows].max())
        length = min(-(-longest // LENGTH_STEP) * LENGTH_STEP, self.input_ids.shape[1])
        pos = np.arange(length)[None, :]
        mask = pos < self.n_pieces[rows, None]
        inputs: dict[str, IntArray] = {
            "input_ids": self.input_ids[rows, :length].astype(np.int32),
            "input_mask": mask.astype(np.int32),
            "segment_ids": (mask & (pos >= self.n_query[rows, None])).astype(np.int32),
        }
        targets: dict[str, IntArray] = {
            "start_logits": self.start_positions[rows].astype(np.int32),
            "end_logits": self.end_positions[rows].astype(np.int32),
            "type_logits": self.answer_types[rows].astype(np.int32),
        }
        return inputs, targets


def _digest(arrays: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.tobytes())
    return digest.hexdigest()


def batches(n_pieces: IntArray, batch_size: int, epoch: int, seed: int) -> list[IntArray]:
    """The rows of each step of one epoch: shuffled, then windows of like length together.

    The same for equal arguments; the last rows that fill no batch are left out, other ones
    in each epoch.
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


def train(
    model: keras.Model,
    windows: TrainingWindows,
    config: TrainConfig,
    folder: Path,
    on_step: Callable[[int, int, float], None] = lambda step, total, loss: None,
) -> list[float]:
    """Trains, going on from the state that an interrupted run of the same settings left.

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
    per_epoch = steps_per_epoch(len(windows), config.batch_size)
    total = int(per_epoch * config.epochs)
    if total < 1:
        raise ValueError(
            f"{len(windows)} training windows do not fill one batch of {config.batch_size}"
        )
    compile_for_training(model, config, total)
    model.optimizer.build(model.trainable_variables)
    start = _digest(variable.numpy() for variable in model.weights)
    state = _State(folder, model, {**config.to_dict(), "windows": windows.digest(), "start": start})
    done, losses = state.restore()
    for step, rows in _schedule(windows, config, done, total, per_epoch):
        model.reset_metrics()
        logs = model.train_on_batch(*windows.batch(rows), return_dict=True)
        losses.append(float(logs["loss"]))
        on_step(step + 1, total, losses[-1])
        if (step + 1) % config.save_every == 0:
            state.save(step + 1, losses)
    return losses


def _schedule(
    windows: TrainingWindows, config: TrainConfig, done: int, total: int, per_epoch: int
) -> Iterator[tuple[int, IntArray]]:
    """Step (from 0) and rows of each step that is still to do."""
    for epoch in range(done // per_epoch, -(-total // per_epoch)):
        rows = batches(windows.n_pieces, config.batch_size, epoch, config.seed)
        for i, batch in enumerate(rows):
            step = epoch * per_epoch + i
            if done <= step < total:
                yield step, batch


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
