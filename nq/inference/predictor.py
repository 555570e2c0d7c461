"""A network under a profile: rows of windows -> the columns that leave the device.

Per window only the k best start and end positions, the [CLS] logits and the type logits leave
the device. A batch whose logits are not finite is computed again in float32, one that is too
large for the memory in halves; neither happens silently.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import tensorflow as tf

from nq.errors import Error
from nq.inference import batches, engine
from nq.inference.batches import Batch, Shape
from nq.inference.engine import COLUMNS, Rows, Step, Task
from nq.inference.profile import grappler_options
from nq.records import SCORE_COLUMNS, Features, IntArray

log = logging.getLogger(__name__)

LONGEST_REASON = 300
Columns = dict[str, np.ndarray[Any, Any]]


@dataclass(eq=False)
class Predictor:
    """A network under a profile, ready to score windows.

    Args:
        task: network, profile and selection.
        shape: of a batch.
        in_float32: makes the predictor that computes batches again whose logits are not finite;
            ``None`` for one that computes in float32 itself.
    """

    task: Task
    shape: Shape
    in_float32: Callable[[], Self] | None = None
    compile_s: float = 0.0
    warmup_s: float = 0.0
    warmup_windows: int = 0
    read_windows: int = 0
    float32_windows: int = 0
    _steps: dict[Shape, Step] = field(default_factory=dict)
    _warm: set[Shape] = field(default_factory=set)
    _most: int = sys.maxsize
    _spare: Self | None = None

    def __post_init__(self) -> None:
        self.engine = engine.make(self.task)
        self.profile = self.task.profile

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        """The profile in force; compiled for the shape of a batch, and checked."""
        with grappler_options(self.profile.changes.grappler):
            if not self.profile.changes.buckets:  # where shapes are compiled as they come
                self._step(self.shape)
            yield

    def scores(self, rows: Rows, on_windows: Callable[[int], None] = lambda n: None) -> Columns:
        """The columns ``SCORE_COLUMNS`` of so many windows as there are, in their order.

        Args:
            rows: the windows, with ``window_ids``.
            on_windows: told how many windows were done just now.

        Raises:
            ArithmeticError: logits are not finite, not even in float32; names the window.
        """
        found: list[tuple[IntArray, Sequence[Any]]] = []
        for batch in self._plan(rows["input_mask"]):
            found.append((batch.rows, self._checked(batch, rows)))
            on_windows(len(batch.rows))
        back = np.argsort(np.concatenate([numbers for numbers, _ in found]))
        columns = zip(*(scores for _, scores in found), strict=True)
        return {n: np.concatenate(c)[back] for n, c in zip(SCORE_COLUMNS, columns, strict=True)}

    def _plan(self, input_mask: IntArray) -> list[Batch]:
        if self.profile.changes.buckets:
            return batches.by_length(input_mask.sum(axis=1), self.shape)
        return batches.in_order(len(input_mask), self.shape)

    def _checked(self, batch: Batch, rows: Rows) -> Sequence[Any]:
        """Scores with finite logits."""
        found = self._run(batch, rows)
        bad = _first_not_finite(found)
        if bad is None:
            return found
        window = _name(batch.rows[bad], rows)
        if self.in_float32 is None:
            raise ArithmeticError(f"logits of {window} are not finite under profile {self.profile}")
        log.warning(
            "logits of %s are not finite under profile %s: its batch is computed again in float32",
            window,
            self.profile,
        )
        if self._spare is None:
            self._spare = self.in_float32()
        self.float32_windows += len(batch.rows)
        with self._spare.ready():
            again = self._spare.scores({n: x[batch.rows] for n, x in rows.items()})
        return [again[name] for name in SCORE_COLUMNS]

    def _run(self, batch: Batch, rows: Rows) -> Sequence[Any]:
        """Computes a batch, padded to its shape; in parts once memory has run out."""
        shape = batch.shape
        if shape.batch_size > self._most:
            smaller = replace(shape, batch_size=self._most)
            parts = batches.in_order(len(batch.rows), smaller)
            found = [self._run(Batch(batch.rows[p.rows], smaller), rows) for p in parts]
            return [np.concatenate(column) for column in zip(*found, strict=True)]
        try:
            step = self._step(shape)
            started = time.perf_counter()
            columns = step({n: _padded(rows[n][batch.rows], shape) for n in COLUMNS})
        except tf.errors.ResourceExhaustedError as error:
            if shape.batch_size == 1:
                raise Error("the device has too little memory for a single window") from error
            self._most = shape.batch_size // 2
            log.warning(
                "too little memory for %d windows at once; going on with %d",
                shape.batch_size,
                self._most,
            )
            return self._run(batch, rows)
        if shape not in self._warm:
            self._warm.add(shape)
            self.warmup_s += time.perf_counter() - started
            self.warmup_windows += len(batch.rows)
        self.read_windows += len(batch.rows)
        return [column[: len(batch.rows)] for column in columns]

    def _step(self, shape: Shape) -> Step:
        """The step for a shape, compiled if it is a new one; XLA does so at the first call."""
        if shape in self._steps:
            return self._steps[shape]
        started = time.perf_counter()
        try:
            step = self.engine.compiled(shape)
            if self.profile.changes.jit_compile:
                empty = (shape.batch_size, shape.length)
                step({name: np.zeros(empty, np.int32) for name in COLUMNS})
        except (Error, MemoryError, tf.errors.ResourceExhaustedError):
            raise
        except Exception as error:  # every engine has kinds of its own
            why = textwrap.shorten(str(error), LONGEST_REASON, placeholder=" …")
            raise Error(
                f"profile {self.profile} cannot run this model here, choose another one: "
                f"{type(error).__name__}: {why}"
            ) from error
        self._steps[shape] = step
        self.compile_s += time.perf_counter() - started
        return step


def _padded(rows: IntArray, shape: Shape) -> IntArray:
    """Cut or padded with zeros to ``shape``."""
    missing = shape.batch_size - len(rows)
    return (
        np.pad(rows[:, : shape.length], ((0, missing), (0, 0)))
        if missing
        else rows[:, : shape.length]
    )


def _first_not_finite(columns: Sequence[Any]) -> int | None:
    logits = [c for name, c in zip(SCORE_COLUMNS, columns, strict=True) if "logit" in name]
    finite = np.isfinite(np.concatenate(logits, axis=1)).all(axis=1)
    return None if finite.all() else int(np.argmin(finite))


def _name(row: int, rows: Rows) -> str:
    name = f"window {rows['window_ids'][row, 0]}"
    if "example_keys" not in rows:
        return name
    file, line = rows["example_keys"][row]
    return f"{name} of the example in line {line} of input file {file}"


def rows_of(features: Features) -> Columns:
    """The windows of one example as ``parts`` gives those of many."""
    ids = np.stack([features.windows, np.full_like(features.windows, features.n_windows)], axis=1)
    return {**{name: getattr(features, name) for name in COLUMNS}, "window_ids": ids}
