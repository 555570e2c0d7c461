"""The predictor: runs a network under a profile on batches of windows.

Of each window only what the reduction keeps leaves the device: for answers the k best start and end
positions, the [CLS] logits and the type logits. A batch whose logits are not finite is computed
again in float32, and one that is too large for the memory is halved; both are logged.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from nq.errors import Error
from nq.inference import batches
from nq.inference.batches import Batch, Shape
from nq.inference.engine import Computation, Step, make_engine
from nq.inference.reduction import Vectors
from nq.inference.scorer import PART_BATCHES, Counters, Rows, Scorer, Steps
from nq.records import VECTORS, WINDOW_COLUMNS, Example, IntArray
from nq.text import truncate

log = logging.getLogger(__name__)

MAX_REASON_CHARS = 300
ANY_LENGTHS = range(16, 1 << 16, 16)
FEW_LENGTHS = (16, 32, 64, 128, 256)
XLA_LENGTHS = (32, 128)
"""To which texts of a dual encoder are padded, or else to the longest: where a new shape costs
nothing, where it is traced, and where it is compiled, which takes many seconds."""


class Predictor(Scorer):
    """Runs the network; ``float32`` returns a predictor for batches whose logits are not finite."""

    part_batches = PART_BATCHES

    def __init__(
        self, computation: Computation, shape: Shape, float32: Callable[[], Predictor] | None = None
    ) -> None:
        self._engine = make_engine(computation)
        self._is_adaptive = computation.adaptive
        self.precision = self._engine.precision
        self.device = self._engine.device
        self.profile = computation.profile
        self.network = computation.network
        self.shape = shape
        self.batch_size = shape.batch_size
        self.counters = Counters()
        self._columns = computation.reduction.columns
        self._steps: dict[Shape, Step] = {}
        self._float32 = float32 and cache(float32)
        self._max_batch_size = sys.maxsize
        if self._is_adaptive and self._engine.any_shape:
            self._compile(shape)  # for all shapes, so that no question waits for it

    def steps(self, rows: Rows, examples: Sequence[Example] = ()) -> Steps:
        """See ``Scorer.steps``; each is a batch, and the examples are not used."""
        computed: list[tuple[IntArray, Sequence[Any]]] = []
        for batch in self._plan(rows["input_mask"].sum(axis=1)):
            if computed:
                yield len(computed[-1][0])
            with self._engine.options():
                computed.append((batch.rows, self._checked(batch, rows)))
        order = np.argsort(np.concatenate([numbers for numbers, _ in computed]))
        columns = zip(*(columns for _, columns in computed), strict=True)
        return {
            name: np.concatenate(column)[order]
            for name, column in zip(self._columns, columns, strict=True)
        }

    def _plan(self, n_pieces: IntArray) -> Sequence[Batch]:
        any_shape = self._is_adaptive and self._engine.any_shape
        if self._columns == Vectors.columns:
            if any_shape:
                plan = batches.by_own_length(n_pieces, self.shape, ANY_LENGTHS)
                return batches.of_size(plan)
            if self.profile.changes.jit_compile and not self._is_adaptive:
                return batches.by_own_length(n_pieces, self.shape, XLA_LENGTHS)
            plan = batches.by_own_length(n_pieces, self.shape, FEW_LENGTHS)
            return batches.without_empty_rows(plan)
        if any_shape:
            return batches.fitted(n_pieces, self.shape)
        plan = batches.in_order(len(n_pieces), self.shape)
        if self.profile.changes.buckets:
            plan = batches.by_length(n_pieces, self.shape)
        return batches.without_empty_rows(plan) if self._is_adaptive else plan

    def _checked(self, batch: Batch, rows: Rows) -> Sequence[Any]:
        """Returns the scores of a batch, computed again in float32 if a logit is not finite."""
        columns = self._run(batch, rows)
        named = zip(self._columns, columns, strict=True)
        logits = [column for name, column in named if "logit" in name or name == VECTORS]
        is_finite = np.isfinite(np.concatenate(logits, axis=1)).all(axis=1)
        if is_finite.all():
            return columns
        row = batch.rows[is_finite.argmin()]
        window = f"window {rows['window_ids'][row, 0]}" if "window_ids" in rows else "a text"
        if "example_keys" in rows:
            file, line = rows["example_keys"][row]
            window += f" of the example in line {line} of input file {file}"
        what = f"logits of {window} are not finite under profile {self.profile}"
        if self._float32 is None:
            raise ArithmeticError(what)
        log.warning("%s: its batch is computed again in float32", what)
        float32 = self._float32()
        self.counters.float32_windows += len(batch.rows)
        exact = float32.scores({n: x[batch.rows] for n, x in rows.items()})
        return [exact[name] for name in self._columns]

    def _run(self, batch: Batch, rows: Rows) -> Sequence[Any]:
        """Computes a batch, padded to its shape; in smaller batches once memory has run out."""
        shape = batch.shape
        if shape.batch_size > self._max_batch_size:
            smaller = replace(shape, batch_size=self._max_batch_size)
            parts = [
                self._run(Batch(batch.rows[part.rows], smaller), rows)
                for part in batches.in_order(len(batch.rows), smaller)
            ]
            return [np.concatenate(column) for column in zip(*parts, strict=True)]
        is_new = shape not in self._steps
        try:
            if is_new:
                started = time.perf_counter()
                self._steps[shape] = self._compile(shape)
                self.counters.compile_s += time.perf_counter() - started
            started = time.perf_counter()
            inputs = {name: _padded(rows[name][batch.rows], shape) for name in WINDOW_COLUMNS}
            columns = self._steps[shape](inputs)
        except MemoryError as error:
            if shape.batch_size == 1:
                raise Error("the device has too little memory for a single window") from error
            self._max_batch_size = shape.batch_size // 2
            log.warning(
                "too little memory for a batch of %d windows: continuing with batches of %d",
                shape.batch_size,
                self._max_batch_size,
            )
            return self._run(batch, rows)
        if is_new:
            self.counters.warmup_s += time.perf_counter() - started
            self.counters.warmup_windows += len(batch.rows)
        self.counters.computed_windows += len(batch.rows)
        return [column[: len(batch.rows)] for column in columns]

    def _compile(self, shape: Shape) -> Step:
        try:
            step = self._engine.compiled(shape)
            if self.profile.changes.jit_compile:  # XLA compiles at the first call
                empty = (shape.batch_size, shape.length)
                step({name: np.zeros(empty, np.int32) for name in WINDOW_COLUMNS})
        except (Error, MemoryError):
            raise
        except Exception as error:  # every engine has exceptions of its own
            reason = truncate(" ".join(str(error).split()), MAX_REASON_CHARS)
            raise Error(
                f"profile {self.profile} cannot run this model here, choose another one: "
                f"{type(error).__name__}: {reason}"
            ) from error
        return step


def _padded(rows: IntArray, shape: Shape) -> IntArray:
    """Returns the rows cut or padded with zeros to ``shape``."""
    rows = rows[:, : shape.length]
    missing = shape.batch_size - rows.shape[0], shape.length - rows.shape[1]
    return np.pad(rows, [(0, n) for n in missing]) if any(missing) else rows
