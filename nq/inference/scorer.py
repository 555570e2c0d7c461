"""The one interface of everything that scores windows.

``Predictor`` runs the model; ``PruningScorer``, ``CascadeScorer`` and ``RescoringScorer`` wrap
scorers and are scorers themselves, so that profiles compose them. Readers in memory and runs on
disk use the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from nq.records import (
    READ_BLOCKS,
    SCORE_COLUMNS,
    SECOND_WINDOW,
    CascadeScores,
    Columns,
    Example,
    Features,
    IntArray,
    Scores,
    WindowScores,
)

Rows = Mapping[str, IntArray]
"""Columns of windows: ``COLUMNS``, each int32 ``[B, L]``, and keys of the windows."""

PART_BATCHES = 16
"""Batches that a part should have at least, so that windows of similar length share one."""
COLUMNS = ("input_ids", "input_mask", "segment_ids", "token_map")

Progress = Callable[[int], None]
"""Receives the number of windows that have just been completed."""


def no_progress(windows: int) -> None:
    """Ignores progress."""


@dataclass
class Counters:
    """What a scorer has done since it was made; seconds end in ``_s``.

    Args:
        compile_s: tracing and compiling.
        warmup_s: the first batch of every shape.
        warmup_windows: windows in those batches.
        computed_windows: windows that the model computed; less than all with pruning.
        float32_windows: windows computed again in float32 because logits were not finite.
        rescore_s: computing close decisions again, with the loading of that model.
        second_model_s: choosing and computing the windows of the second model.
    """

    compile_s: float = 0.0
    warmup_s: float = 0.0
    warmup_windows: int = 0
    computed_windows: int = 0
    float32_windows: int = 0
    rescore_s: float = 0.0
    second_model_s: float = 0.0

    def __sub__(self, earlier: Counters) -> Counters:
        """Returns what was done since ``earlier``, a copy of these counters."""
        return Counters(**{n: x - getattr(earlier, n) for n, x in vars(self).items()})


class Scorer(Protocol):
    """Scores the windows of whole examples.

    Attributes:
        network: the ``Network`` that is run; ``None`` where other processes run it.
        counters: of this scorer and those that it wraps.
        precision: compute type of the matrix products.
        part_batches: batches that one call should have at least, for efficiency.
    """

    counters: Counters
    precision: str
    device: str
    batch_size: int
    part_batches: int

    @property
    def network(self) -> Any: ...

    def scores(
        self, rows: Rows, examples: Sequence[Example], progress: Progress = no_progress
    ) -> Columns:
        """Returns the columns ``SCORE_COLUMNS``, one row per window, in the order of ``rows``.

        The rows are all windows of the examples, with ``window_ids``. A cascade returns more
        windows than ``rows`` has, with ``window_ids`` for all. Logits that are not even finite in
        float32 raise ``ArithmeticError``.
        """


class ScorerWrapper:
    """Base of scorers that wrap another scorer, whose attributes they have."""

    def __init__(self, inner: Scorer) -> None:
        self.inner, self.network, self.counters = inner, inner.network, inner.counters
        self.precision, self.device = inner.precision, inner.device
        self.batch_size, self.part_batches = inner.batch_size, inner.part_batches


def example_slices(rows: Rows) -> list[slice]:
    """Returns the range of rows of each example; its first window has number 0."""
    starts = np.flatnonzero(rows["window_ids"][:, 0] == 0).tolist()
    return [slice(a, b) for a, b in pairwise([*starts, len(rows["window_ids"])])]


def split_examples(rows: Rows, columns: Columns) -> list[Columns]:
    """Returns the columns of each example as a table of its own.

    They are of the windows in ``rows``, or of more windows with ``window_ids`` of their own.
    """
    slices = example_slices({**rows, **columns})
    return [{name: column[page] for name, column in columns.items()} for page in slices]


def window_scores(columns: Columns, rows: slice = slice(None)) -> WindowScores:
    """Returns the scores in these rows of the columns."""
    return WindowScores(**{name: columns[name][rows] for name in SCORE_COLUMNS})


def example_scores(columns: Columns, rows: slice = slice(None)) -> Scores:
    """Returns the scores of the example in these rows of the columns."""
    if SECOND_WINDOW not in columns:
        return window_scores(columns, rows)
    page = {name: column[rows] for name, column in columns.items()}
    is_second = page[SECOND_WINDOW] >= 0
    first, second = ({n: x[one] for n, x in page.items()} for one in (~is_second, is_second))
    ranges = [np.arange(first, end) for first, end in second[READ_BLOCKS].tolist()]
    read = np.unique(np.concatenate([np.empty(0, np.int64), *ranges]))
    return CascadeScores(window_scores(first), window_scores(second), read)


def feature_rows(features: Features) -> Columns:
    """Returns the windows of one example as rows, as they are read from TFRecords."""
    ids = np.stack([features.windows, np.full_like(features.windows, features.n_windows)], axis=1)
    return {**{name: getattr(features, name) for name in COLUMNS}, "window_ids": ids}


def concatenate(parts: Sequence[Columns]) -> Columns:
    """Returns the rows of all parts as one table."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclass(frozen=True, eq=False)
class Part:
    """Whole examples, in the order of the input, whose windows are scored in one call."""

    examples: Sequence[Example]
    rows: Columns

    def scored(self, columns: Columns) -> Iterator[tuple[Example, Scores]]:
        """Yields each example with its scores, from what a scorer returned for the part."""
        pages = example_slices({**self.rows, **columns})
        for example, page in zip(self.examples, pages, strict=True):
            yield example, example_scores(columns, page)


def parts(windows: Iterator[tuple[Example, Columns]], scorer: Scorer) -> Iterator[Part]:
    """Yields examples, given with the rows of their windows, as parts that a scorer should have."""
    enough = scorer.part_batches * scorer.batch_size
    examples: list[Example] = []
    tables: list[Columns] = []
    pending = 0
    for example, rows in windows:
        examples.append(example)
        tables.append(rows)
        pending += len(rows["window_ids"])
        if pending >= enough:
            yield Part(examples, concatenate(tables))
            examples, tables, pending = [], [], 0
    if examples:
        yield Part(examples, concatenate(tables))


def score_examples(
    scorer: Scorer, windows: Iterator[tuple[Example, Columns]], progress: Progress = no_progress
) -> Iterator[tuple[Example, Scores]]:
    """Yields each example with the scores of its windows, computed several examples at a time."""
    for part in parts(windows, scorer):
        yield from part.scored(scorer.scores(part.rows, part.examples, progress))
