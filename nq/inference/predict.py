"""windows -> scores on disk: the loop over shards, results that survive a kill.

Results are written in parts of a shard, each whole or not at all; a run that was killed goes
on behind its last part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from nq.errors import Error
from nq.inference.batches import Shape
from nq.inference.predictor import Columns, Predictor
from nq.model.data import records, spec
from nq.runs.score_store import KEYS, claim, windows_done, write_part

PART_BATCHES = 16
CALIBRATION = 64

Score = Callable[[Columns, Callable[[int], None]], Columns]
"""Rows of windows, and who is told how many were done; the columns of their scores."""


@dataclass(frozen=True)
class Timing:
    """Seconds and windows of a prediction.

    Args:
        compile_s: of tracing and compiling.
        warmup_s: of the first batch of every shape.
        steady_s: of the others.
        windows: scored by this process.
        warmup_windows: those of them in the first batches.
        read_windows: those of them that the model computed, fewer under ``refine``.
        float32_windows: those that were computed again in float32, for want of finite logits.
        resumed_windows: scored by an interrupted run.
    """

    compile_s: float
    warmup_s: float
    steady_s: float
    windows: int
    warmup_windows: int
    read_windows: int
    float32_windows: int
    resumed_windows: int

    @property
    def windows_per_s(self) -> float:
        """Speed without compile and warm-up; with the warm-up where there is no more."""
        steady = self.windows - self.warmup_windows
        windows, seconds = steady, self.steady_s
        if steady <= 0:
            windows, seconds = self.windows, self.steady_s + self.warmup_s
        return windows / seconds if seconds else 0.0


def predict(
    predictor: Predictor,
    shards: Iterable[Path],
    folder: Path,
    request: dict[str, Any],
    on_windows: Callable[[int], None] = lambda n: None,
    score: Score | None = None,
    part_batches: int = PART_BATCHES,
) -> Timing:
    """Scores all shards into ``folder``, going on where an equal request was interrupted.

    Args:
        predictor: model and profile.
        shards: TFRecord files of windows, each looked at when those before it are done.
        folder: for the results; parts of another request in it are removed.
        request: what makes results comparable: features, model, profile, batch size …
        on_windows: told how many windows were done.
        score: how windows of whole examples get their scores, if not by ``predictor.scores``.
        part_batches: a part holds so many batches, or a little more.

    Raises:
        ArithmeticError: logits are not finite; names the window.
    """
    claim(folder, request)
    steady, windows, resumed = 0.0, 0, 0
    with predictor.ready():
        cold = predictor.compile_s + predictor.warmup_s
        for shard in shards:
            done = windows_done(folder, shard)
            resumed += done
            on_windows(done)
            started = time.perf_counter()
            for rows in parts(shard, predictor.shape, done, part_batches):
                found = (score or predictor.scores)(rows, on_windows)
                write_part(folder, shard, done, {**found, **{n: rows[n] for n in KEYS}})
                done += len(rows["window_ids"])
                windows += len(rows["window_ids"])
            steady += time.perf_counter() - started
    return Timing(
        predictor.compile_s,
        predictor.warmup_s,
        steady - (predictor.compile_s + predictor.warmup_s - cold),
        windows,
        predictor.warmup_windows,
        predictor.read_windows,
        predictor.float32_windows,
        resumed,
    )


def parts(
    shard: Path, shape: Shape, skip: int = 0, part_batches: int = PART_BATCHES
) -> Iterator[Columns]:
    """The windows of a shard from number ``skip`` on, in parts of whole examples.

    Args:
        shard: TFRecords of windows, those of an example one after the other.
        shape: of a batch.
        skip: at the beginning of an example.
        part_batches: a part holds so many batches, or a little more.
    """
    features, least = spec(shape.length, training=False), part_batches * shape.batch_size

    def decode(serialized: Any) -> Any:
        parsed = tf.io.parse_example(serialized, features)
        return {name: tf.cast(value, tf.int32) for name, value in parsed.items()}

    dataset = records([shard]).skip(skip).batch(least).map(decode).prefetch(1)
    left: Columns = {}
    for read in dataset.as_numpy_iterator():
        rows = {n: np.concatenate([left[n], read[n]]) if left else read[n] for n in read}
        window, windows = rows["window_ids"].T
        ends = np.flatnonzero(window + 1 == windows) + 1
        whole = ends[ends >= least]
        while len(whole):
            end = int(whole[0])
            yield {name: value[:end] for name, value in rows.items()}
            rows = {name: value[end:] for name, value in rows.items()}
            whole = whole[whole >= end + least] - end
        left = rows
    if left and len(left["window_ids"]):
        yield left


def some_windows(shards: Sequence[Path], shape: Shape, count: int = CALIBRATION) -> Columns:
    """About so many windows from all over the first part of the data.

    Raises:
        Error: there are none.
    """
    rows = next((rows for shard in shards for rows in parts(shard, shape)), None)
    if rows is None:
        raise Error("there are no windows to try the profile on")
    step = -(-len(rows["window_ids"]) // count)
    return {name: value[::step] for name, value in rows.items()}
