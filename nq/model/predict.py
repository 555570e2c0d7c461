"""windows -> scores: the compiled step, the loop over shards, results that survive a kill.

Per window only the k best start and end positions, the [CLS] logits and the type logits
leave the device. Results are written in parts of a shard, each whole or not at all; a run
that was killed goes on behind its last part.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from nq.formats.results import KEYS, SCORES, claim, windows_done, write_part
from nq.model.data import spec
from nq.model.profile import Profile, check_in_force, grappler_options
from nq.records import Features, IntArray, WindowScores

PART_BATCHES = 16
COLUMNS = ("input_ids", "input_mask", "segment_ids", "token_map")


@dataclass(frozen=True)
class Selection:
    """Which positions may start or end an answer, and how many leave the device.

    Args:
        k: positions for the start and for the end.
        text_only: only positions of document text; else any but [CLS], as the original.
    """

    k: int
    text_only: bool


@dataclass(frozen=True)
class Timing:
    """Seconds and windows of a prediction; ``steady_s`` is without compile and warm-up."""

    compile_s: float
    warmup_s: float
    steady_s: float
    windows: int
    resumed_windows: int

    @property
    def windows_per_s(self) -> float:
        """Steady speed of this process."""
        return self.windows / self.steady_s if self.steady_s else 0.0


def device() -> str:
    """Where TensorFlow computes: ``GPU`` or ``CPU``."""
    return "GPU" if tf.config.list_physical_devices("GPU") else "CPU"


def best_positions(logits: Any, allowed: Any, token_map: Any, k: int) -> tuple[Any, Any, Any]:
    """The k best allowed positions of each row: document token, position, logit.

    Where fewer are allowed, the document token of the rest is -1. Equal logits: the
    earlier position first.
    """
    lowest = float(np.finfo(np.float32).min)
    masked = ops.where(allowed, logits, lowest)
    value, pos = ops.top_k(masked, k)
    doc = ops.take_along_axis(token_map, pos, axis=1)
    return ops.where(value > lowest, doc, -1), pos, value


class Predictor:
    """A model under a profile, ready to score windows.

    Args:
        model: built for a pinned batch shape in the profile's precision.
        profile: what optimizations to run under.
        selection: which positions leave the device.
    """

    def __init__(self, model: keras.Model, profile: Profile, selection: Selection) -> None:
        self.model, self.profile, self.selection = model, profile, selection
        self.batch_size, self.length = model.inputs[0].shape
        self.precision = profile.precision(device())
        self.compile_s = self.warmup_s = 0.0
        signature = [tf.TensorSpec((self.batch_size, self.length), tf.int32)] * 4
        self._step = tf.function(
            self._compute, input_signature=signature, jit_compile=profile.changes.jit_compile
        )

    def _compute(self, input_ids: Any, input_mask: Any, segment_ids: Any, token_map: Any) -> Any:
        inputs = {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}
        found = self.model(inputs, training=False)
        allowed = token_map >= 0 if self.selection.text_only else ops.arange(self.length) > 0
        start, end, k = found["start_logits"], found["end_logits"], self.selection.k
        return (
            *best_positions(start, allowed, token_map, k),
            *best_positions(end, allowed, token_map, k),
            ops.stack([start[:, 0], end[:, 0]], axis=1),
            found["type_logits"],
        )

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        """The profile in force: compiled, checked, warmed up."""
        with grappler_options(self.profile.changes.grappler):
            empty = [tf.zeros((self.batch_size, self.length), tf.int32)] * 4
            started = time.perf_counter()
            self.score(*empty)
            self.compile_s = time.perf_counter() - started
            check_in_force(self.profile, self._step.get_concrete_function(), self.precision)
            started = time.perf_counter()
            self.score(*empty)
            self.warmup_s = time.perf_counter() - started
            yield

    def score(self, *rows: Any) -> list[Any]:
        """Scores one batch of the pinned shape: the columns named in ``SCORES``."""
        return [column.numpy() for column in self._step(*rows)]

    def batches(self, shard: Path, skip: int) -> Any:
        """tf.data over one shard from window ``skip`` on, the last batch padded with zeros."""
        features = spec(self.length, training=False)

        def decode(records: Any) -> Any:
            return {
                n: tf.cast(v, tf.int32) for n, v in tf.io.parse_example(records, features).items()
            }

        def pad(rows: Any) -> Any:
            missing = self.batch_size - tf.shape(rows["input_ids"])[0]
            padded = {n: tf.pad(v, [[0, missing], [0, 0]]) for n, v in rows.items()}
            return {n: tf.ensure_shape(v, [self.batch_size, v.shape[1]]) for n, v in padded.items()}

        dataset = tf.data.TFRecordDataset(str(shard)).skip(skip).batch(self.batch_size)
        return dataset.map(decode).map(pad).prefetch(4)


def predict(
    predictor: Predictor,
    shards: Sequence[Path],
    folder: Path,
    request: dict[str, Any],
    on_windows: Callable[[int], None] = lambda n: None,
) -> Timing:
    """Scores all shards into ``folder``, going on where an equal request was interrupted.

    Args:
        predictor: model and profile.
        shards: TFRecord files of windows.
        folder: for the results; parts of another request in it are removed.
        request: what makes results comparable: features, model, profile, batch size …
        on_windows: told how many windows were done.

    Raises:
        ArithmeticError: logits are not finite; names the window.
    """
    claim(folder, request)
    steady, windows, resumed = 0.0, 0, 0
    with predictor.ready():
        for shard in shards:
            done = windows_done(folder, shard)
            resumed += done
            on_windows(done)
            started = time.perf_counter()
            for part in _parts(predictor, shard, done, on_windows):
                write_part(folder, shard, done, part)
                done += len(part["window_ids"])
                windows += len(part["window_ids"])
            steady += time.perf_counter() - started
    return Timing(predictor.compile_s, predictor.warmup_s, steady, windows, resumed)


def _parts(
    predictor: Predictor, shard: Path, done: int, on_windows: Callable[[int], None]
) -> Iterator[dict[str, IntArray]]:
    """The parts of a shard behind window ``done``."""
    scored: list[dict[str, Any]] = []
    for batch in predictor.batches(shard, done):
        scored.append(_score(predictor, batch))
        on_windows(len(scored[-1]["window_ids"]))
        if len(scored) == PART_BATCHES:
            yield _joined(scored)
            scored = []
    if scored:
        yield _joined(scored)


def _joined(scored: list[dict[str, Any]]) -> dict[str, IntArray]:
    return {name: np.concatenate([s[name] for s in scored]) for name in (*KEYS, *SCORES)}


def _score(predictor: Predictor, batch: dict[str, Any]) -> dict[str, Any]:
    columns = predictor.score(*(batch[name] for name in COLUMNS))
    real = batch["window_ids"].numpy()[:, 1] > 0
    found = dict(zip(SCORES, columns, strict=True)) | {n: batch[n].numpy() for n in KEYS}
    found = {name: value[real] for name, value in found.items()}
    bad = _first_not_finite(found)
    if bad is not None:
        file, line = found["example_keys"][bad]
        raise ArithmeticError(
            f"logits of window {found['window_ids'][bad, 0]} of the example in line {line} of "
            f"input file {file} are not finite under profile {predictor.profile}"
        )
    return found


def _first_not_finite(found: dict[str, Any]) -> int | None:
    logits = np.concatenate([value for n, value in found.items() if "logit" in n], axis=1)
    finite = np.isfinite(logits).all(axis=1)
    return None if finite.all() else int(np.argmin(finite))


def score_features(predictor: Predictor, features: Features) -> WindowScores:
    """Scores all windows of one example in memory; call it while the predictor is ``ready``.

    Raises:
        ArithmeticError: logits are not finite; names the window.
    """
    size, rows = predictor.batch_size, [getattr(features, name) for name in COLUMNS]
    batches = []
    for first in range(0, len(features), size):
        batch = [row[first : first + size] for row in rows]
        missing = size - len(batch[0])
        batches.append(predictor.score(*(np.pad(row, ((0, missing), (0, 0))) for row in batch)))
    columns = [np.concatenate(column)[: len(features)] for column in zip(*batches, strict=True)]
    found = dict(zip(SCORES, columns, strict=True))
    bad = _first_not_finite(found)
    if bad is not None:
        raise ArithmeticError(
            f"logits of window {bad} are not finite under profile {predictor.profile}"
        )
    return WindowScores(**found)
