"""Scores on disk: a memo whose parts have the scores of several whole examples.

An interrupted run leaves its parts; an equal run takes the examples in them as scored. A run with
``--keep-scores`` leaves them for error analysis and comparisons, where a damaged part is an error.
"""

from __future__ import annotations

import logging
import queue
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nq.errors import DamagedError, Error
from nq.inference.instances import InstancePool
from nq.inference.scorer import (
    Part,
    Progress,
    Rows,
    Scorer,
    concatenate,
    example_scores,
    example_slices,
    no_progress,
    parts,
)
from nq.memo import Memo
from nq.records import (
    READ,
    RESCORED,
    SECOND_WINDOW,
    Columns,
    Example,
    ExampleKey,
    IntArray,
    Scores,
    WindowScores,
)
from nq.runs.measure import PREDICT, Clock

log = logging.getLogger(__name__)

KEYS = ("example_keys", "window_ids")
PARTS_IN_MEMORY = 8


class ScoreStore:
    """The scores of examples in the parts of a memo, by file number and line.

    With ``repair`` damaged parts are removed, so that their examples are missing.
    """

    def __init__(self, folder: Path, repair: bool = False) -> None:
        self.memo = Memo(folder)
        self._index: dict[ExampleKey, tuple[str, slice]] = {}
        self._read = lru_cache(maxsize=PARTS_IN_MEMORY)(self.memo.read)
        names, damaged = self.memo.names(), list[DamagedError]()
        for name in names:
            try:
                self._add(name, self.memo.read(name))
            except DamagedError as error:
                if not repair:
                    raise DamagedError(f"{error}; run with --keep-scores again") from error
                damaged.append(error)
                self.memo.remove(name)
        if damaged:
            log.warning(
                "%s; damaged parts of the scores: %d of %d, which are computed again",
                *(damaged[0], len(damaged), len(names)),
            )

    @classmethod
    def open(cls, folder: Path, request: Mapping[str, Any]) -> ScoreStore:
        """Returns the store in a folder, which is created; see ``Memo.open``."""
        return cls(Memo.open(folder, request).folder, repair=True)

    def write(self, rows: Rows, columns: Columns) -> None:
        """Writes the scores of some whole examples as one part.

        Args:
            rows: the columns ``KEYS`` of their windows, and others.
            columns: their scores; two models have ``window_ids`` of their own.
        """
        table = {**{name: rows[name] for name in KEYS}, **columns}
        file, line = table["example_keys"][0]
        name = f"part-{file:06d}-{line:09d}.npz"
        self.memo.write(name, table)
        self._add(name, table)

    def _add(self, name: str, keys: Rows) -> None:
        for page in example_slices(keys):
            file, line = keys["example_keys"][page.start].tolist()
            self._index[file, line] = name, page

    def __iter__(self) -> Iterator[ExampleKey]:
        return iter(sorted(self._index))

    def __contains__(self, key: object) -> bool:
        return key in self._index

    def scores(self, key: ExampleKey) -> Scores:
        """Returns all scores of one example."""
        return example_scores(self.columns(key))

    def __getitem__(self, key: ExampleKey) -> WindowScores:
        """Returns the scores of the first model alone."""
        scores = self.scores(key)
        return scores if isinstance(scores, WindowScores) else scores.first

    def columns(self, key: ExampleKey) -> Columns:
        """Returns the columns of one example."""
        if key not in self._index:
            raise Error(
                f"the scores in {self.memo.folder} are not complete, input file {key[0]}, line "
                f"{key[1]} is missing: remove that folder and run again"
            )
        part, page = self._index[key]
        return {name: x[page] for name, x in self._read(part).items()}

    def computed(self, key: ExampleKey) -> IntArray:
        """Returns ``[W]`` which windows of an example the model computed, and did not prune."""
        columns = self.columns(key)
        return columns.get(READ, np.ones(len(columns["window_ids"]), np.bool_))


@dataclass(eq=False)
class _Pending:
    """A part that is computed; ``columns`` are those of all its examples, once they are stored.

    ``new_rows`` are the windows of the examples that were not in the store.
    """

    part: Part
    keys: Sequence[ExampleKey]
    new_rows: Rows
    future: Future[Columns]
    columns: Columns | None = None


class StoringScorer:
    """Scores examples that are not in a store and writes them to it; takes the others from it.

    Instances compute one part more than there are of them, so that none waits for the next. Scores
    are stored as soon as they are there, so that an interrupted run loses only what was computed.
    While instances compute, all time counts as ``PREDICT``, that of reading and deciding too.

    Args:
        inner: computes the scores; a pool of instances several parts at once.
        store: of the same request.
        clock: gets the time of the computation, with the writing of the scores.
        progress: receives completed windows, in the thread of ``score``.

    Attributes:
        resumed_windows: windows that were in the store already.
        rescored: examples with a close decision, those in the store included.
        second_model_windows: windows of a second model, those in the store included.
    """

    def __init__(
        self,
        inner: Scorer,
        store: ScoreStore,
        clock: Clock | None = None,
        progress: Progress = no_progress,
    ) -> None:
        self.inner, self.store = inner, store
        self.resumed_windows = self.rescored = self.second_model_windows = 0
        self._clock, self._progress = clock or Clock(), progress
        self._pool = inner if isinstance(inner, InstancePool) else None
        self._pending = deque[_Pending]()
        self._completed: queue.SimpleQueue[int] = queue.SimpleQueue()

    def score(self, windows: Iterator[tuple[Example, Columns]]) -> Iterator[tuple[Example, Scores]]:
        """Yields each example with its scores, in order.

        Args:
            windows: each example with the rows of its windows, with ``example_keys``.
        """
        for part in parts(windows, self.inner):
            with self._clock(PREDICT):
                self._pending.append(self._start(part))
            while len(self._pending) > (len(self._pool) if self._pool else 0):
                yield from self._first()
        while self._pending:
            yield from self._first()

    def _start(self, part: Part) -> _Pending:
        """Starts to compute the examples of a part that are not in the store."""
        rows, pages = part.rows, example_slices(part.rows)
        keys: list[ExampleKey] = [tuple(rows["example_keys"][p.start].tolist()) for p in pages]
        new = [n for n, key in enumerate(keys) if key not in self.store]
        tables = [{name: column[pages[n]] for name, column in rows.items()} for n in new]
        count = len(rows["window_ids"]) - sum(len(table["window_ids"]) for table in tables)
        self.resumed_windows += count
        self._progress(count)
        new_rows = concatenate(tables) if tables else {}
        examples, future = [part.examples[n] for n in new], Future[Columns]()
        if not new:
            future.set_result({})
        elif self._pool is None:
            future.set_result(self.inner.scores(new_rows, examples, self._progress))
        else:
            future = self._pool.submit(new_rows, examples, self._completed.put)
            future.add_done_callback(lambda _: self._completed.put(0))
            self._clock.cover(PREDICT)
        return _Pending(part, keys, new_rows, future)

    def _first(self) -> Iterator[tuple[Example, Scores]]:
        """Waits for the first part, removes it, and returns its examples with their scores."""
        while True:
            for one in self._pending:
                if one.columns is None and one.future.done():
                    with self._clock(PREDICT):
                        one.columns = self._store(one)
            if (columns := self._pending[0].columns) is not None:
                break
            self._progress(self._completed.get())
        while not self._completed.empty():  # windows of a part are reported before its scores
            self._progress(self._completed.get())
        part = self._pending.popleft().part
        if self._pool is not None and all(one.future.done() for one in self._pending):
            self._clock.cover("")
        return part.scored(columns)

    def _store(self, one: _Pending) -> Columns:
        """Stores what was computed of a part; returns the columns of the whole part."""
        columns = one.future.result()
        if one.new_rows:
            self.store.write(one.new_rows, columns)
        if len(one.new_rows.get("window_ids", ())) < len(one.part.rows["window_ids"]):
            columns = concatenate([self.store.columns(key) for key in one.keys])
        if RESCORED in columns:
            pages = example_slices({**one.part.rows, **columns})
            self.rescored += sum(bool(columns[RESCORED][page.start]) for page in pages)
        if SECOND_WINDOW in columns:
            self.second_model_windows += int((columns[SECOND_WINDOW] >= 0).sum())
        return columns
