"""The one interface of everything that scores windows, and the way from a question to its answer.

``Predictor`` runs the model; ``PruningScorer``, ``CascadeScorer`` and ``RescoringScorer`` wrap
scorers and are scorers themselves, so that profiles compose them.

Readers, runs and the evaluation during a training iterate over ``answers``: example -> windows ->
scores -> decision. The server and Beam batch the examples themselves and call the steps of it:
``windowed``, a scorer, ``decide``.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nq.config import DecisionConfig, WindowConfig
from nq.postprocess.decision import RankedPrediction, decide
from nq.preprocess.features import features
from nq.preprocess.tokenizers.base import Tokenizer
from nq.records import (
    READ_BLOCKS,
    READER_WINDOW,
    RESCORED,
    SCORE_COLUMNS,
    CascadeScores,
    Columns,
    Example,
    IntArray,
    Scores,
    Windowed,
    WindowScores,
)

Rows = Mapping[str, IntArray]
"""Columns of windows: ``WINDOW_COLUMNS``, each int32 ``[B, L]``, and keys of the windows."""

PART_BATCHES = 16
"""Batches that a part should have at least, so that windows of similar length share one."""
PART_FACTOR = 4
"""The factor by which parts are larger where a model computes only some windows of each page."""

Progress = Callable[[int], None]
"""Receives the number of windows that have just been completed."""

T = TypeVar("T")
Steps = Generator[int, None, Columns]
"""Yields between two steps the windows that the first has completed; at its end returns columns."""


def no_progress(*event: object) -> None:
    """Ignores progress, of windows or of other work."""


@dataclass
class Counters:
    """What a scorer has done since it was made.

    Args:
        warmup_s, warmup_windows: the first batch of every shape.
        computed_windows: windows that the model computed; less than all with pruning.
        float32_windows: windows computed again in float32 because logits were not finite.
        rescore_s: computing close decisions again, with the loading of that model.
        reader_s: choosing and computing the windows of the reader of two models.
    """

    compile_s: float = 0.0
    warmup_s: float = 0.0
    warmup_windows: int = 0
    computed_windows: int = 0
    float32_windows: int = 0
    rescore_s: float = 0.0
    reader_s: float = 0.0

    def add(self, done: Counters, processes: int = 1) -> None:
        """Adds what one of several processes has done; their seconds go by at the same time."""
        for name, value in vars(done).items():
            share = value / processes if name.endswith("_s") else value
            setattr(self, name, getattr(self, name) + share)

    def __sub__(self, earlier: Counters) -> Counters:
        """Returns what was done since ``earlier``, a copy."""
        done = {name: value - getattr(earlier, name) for name, value in vars(self).items()}
        return Counters(**done)


class Scorer:
    """Scores the windows of whole examples. A subclass has ``steps``, or ``submit`` alone.

    Attributes:
        network: the ``Network`` that is run; ``None`` where other processes run it.
        precision: compute type of the matrix products.
        part_batches: batches that one call should have at least, for efficiency.
        parallel_parts: parts that ``submit`` computes at the same time beside the caller.
    """

    network: Any
    counters: Counters
    precision: str
    device: str
    batch_size: int
    part_batches: int
    parallel_parts = 0

    def scores(
        self,
        rows: Rows,
        examples: Sequence[Example] = (),
        progress: Progress = no_progress,
    ) -> Columns:
        """Returns the columns ``SCORE_COLUMNS``, one row per window, in the order of ``rows``.

        The rows are all windows of the examples. A cascade returns more windows, with
        ``window_ids``. Logits that are not even finite in float32 raise ``ArithmeticError``.
        """
        remaining = len(rows["token_map"])
        with contextlib.closing(self.steps(rows, examples)) as steps:
            while isinstance(result := advance(steps), int):
                progress(result)
                remaining -= result
        progress(remaining)
        return result

    def steps(self, rows: Rows, examples: Sequence[Example]) -> Steps:
        """Computes ``scores`` in steps of about one batch, between which others may be computed."""
        raise NotImplementedError

    def submit(
        self, rows: Rows, examples: Sequence[Example], progress: Progress = no_progress
    ) -> Future[Columns]:
        """Returns a future of the scores; ``progress`` may be called in another thread."""
        future = Future[Columns]()
        future.set_result(self.scores(rows, examples, progress))
        return future


class ScorerWrapper(Scorer):
    """Base of scorers that wrap another scorer, whose attributes they have."""

    def __init__(self, inner: Scorer) -> None:
        self.inner = inner
        self.network = inner.network
        self.counters = inner.counters
        self.precision = inner.precision
        self.device = inner.device
        self.batch_size = inner.batch_size
        self.part_batches = inner.part_batches


def advance(steps: Generator[int, None, T]) -> int | T:
    """Runs one step; returns the number of windows it completed or, at the end, the result."""
    try:
        return next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


def uncounted(scorer: Scorer, rows: Rows, examples: Sequence[Example] = ()) -> Steps:
    """Runs steps whose windows are counted elsewhere, and reports 0 completed windows for each."""
    yield 0
    steps = scorer.steps(rows, examples)
    while isinstance(result := advance(steps), int):
        yield 0
    return result


def example_slices(rows: Rows) -> list[slice]:
    """Returns each example's range of rows; an example begins at the window number 0."""
    starts = np.flatnonzero(rows["window_ids"][:, 0] == 0).tolist()
    return [slice(a, b) for a, b in pairwise([*starts, len(rows["window_ids"])])]


def split_examples(rows: Rows, columns: Columns) -> list[Columns]:
    """Splits columns by example: by their own ``window_ids``, else by those of the rows."""
    slices = example_slices({**rows, **columns})
    return [{name: column[page] for name, column in columns.items()} for page in slices]


def window_scores(columns: Columns, rows: slice | NDArray[np.bool_] = slice(None)) -> WindowScores:
    """Returns the scores in these rows of the columns."""
    return WindowScores(**{name: columns[name][rows] for name in SCORE_COLUMNS})


def example_scores(columns: Columns) -> Scores:
    """Returns the scores of the example with these columns."""
    if READER_WINDOW not in columns:
        return window_scores(columns)
    is_reader = columns[READER_WINDOW] >= 0
    ranges = columns[READ_BLOCKS][is_reader].tolist()
    blocks = [np.arange(start, end) for start, end in ranges]
    read = np.unique(np.concatenate([np.empty(0, np.int64), *blocks]))
    ranker = window_scores(columns, ~is_reader)
    return CascadeScores(ranker, window_scores(columns, is_reader), read)


def no_value(name: str) -> int:
    """Returns what fills a score column where there is no position: -1 for a document token."""
    return -1 if name.endswith("_doc") else 0


def concatenate(parts: Sequence[Columns]) -> Columns:
    """Returns the rows of all parts as one table."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclass(frozen=True, eq=False)
class Scored:
    """An example with the columns that a scorer returned for its windows."""

    windowed: Windowed
    columns: Columns

    @property
    def example(self) -> Example:
        return self.windowed.example

    @property
    def scores(self) -> Scores:
        """The scores of its windows, of both models of a cascade."""
        return example_scores(self.columns)

    @property
    def rescored(self) -> bool:
        """Whether its decision was close, so that its windows were computed again in float32."""
        return bool(self.columns.get(RESCORED, np.zeros(1, np.bool_))[0])

    @property
    def reader_windows(self) -> int:
        """Windows that the reader of a cascade computed."""
        return int((self.columns.get(READER_WINDOW, np.full(1, -1)) >= 0).sum())


@dataclass(frozen=True, eq=False)
class Part:
    """Whole examples, in the order of the input, whose windows are scored in one call."""

    windowed: Sequence[Windowed]

    def __len__(self) -> int:
        return len(self.rows["window_ids"])

    @property
    def examples(self) -> list[Example]:
        return [one.example for one in self.windowed]

    @cached_property
    def rows(self) -> Columns:
        return concatenate([one.rows for one in self.windowed])

    def scored(self, columns: Columns) -> Iterator[Scored]:
        """Yields each example with its rows of the scorer's ``columns``."""
        return map(Scored, self.windowed, split_examples(self.rows, columns))


def parts(examples: Iterable[Windowed], enough: int) -> Iterator[Part]:
    """Groups examples into parts of at least ``enough`` windows, except the last part."""
    some = list[Windowed]()
    pending = 0
    for one in examples:
        some.append(one)
        pending += len(one)
        if pending >= enough:
            yield Part(some)
            some = []
            pending = 0
    if some:
        yield Part(some)


def score_examples(
    scorer: Scorer, examples: Iterable[Windowed], progress: Progress = no_progress
) -> Iterator[Scored]:
    """Yields each example with the scores of its windows, in order.

    Several examples are computed in one call, and with a scorer that computes parts beside each
    other one part more than that is begun, so that none waits for the next.
    """
    begun = deque[tuple[Part, Future[Columns]]]()

    def first() -> Iterator[Scored]:
        part, future = begun.popleft()
        return part.scored(future.result())

    for part in parts(examples, scorer.part_batches * scorer.batch_size):
        begun.append((part, scorer.submit(part.rows, part.examples, progress)))
        while len(begun) > scorer.parallel_parts:
            yield from first()
    while begun:
        yield from first()


def windowed(example: Example, tokenizer: Tokenizer, windows: WindowConfig) -> Windowed:
    """Returns an example with its windows; ``ValueError`` if they are too many."""
    return Windowed(example, features(example, tokenizer, windows).rows)


def answers(
    scorer: Scorer,
    examples: Iterable[Windowed],
    decision: DecisionConfig,
    progress: Progress = no_progress,
) -> Iterator[tuple[Scored, RankedPrediction]]:
    """Yields each example with its scores and the decision, in order; a few are in memory."""
    for scored in score_examples(scorer, examples, progress):
        yield scored, decide(scored.example, scored.scores, decision)
