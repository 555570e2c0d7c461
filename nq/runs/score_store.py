"""Scores on disk: a memo whose parts have the scores of several whole examples.

An interrupted run leaves its parts; an equal run takes the examples in them as scored. A run with
``--keep-scores`` leaves them for error analysis and comparisons, where a damaged part is an error.
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from pathlib import Path
from typing import Any

from nq.errors import DamagedError, Error
from nq.inference.scorer import (
    Progress,
    Rows,
    Scorer,
    ScorerWrapper,
    concatenate,
    example_scores,
    example_slices,
    no_progress,
    split_examples,
)
from nq.memo import Memo
from nq.records import Columns, Example, ExampleKey, Scores, WindowScores
from nq.runs.measure import PREDICT, Clock

log = logging.getLogger(__name__)

KEYS = ("example_keys", "window_ids")


class ScoreStore:
    """The scores of examples in the parts of a memo, by file number and line.

    With a request (see ``Memo.open``) the folder is created, and damaged parts are removed.
    """

    def __init__(self, folder: Path, request: Mapping[str, Any] | None = None) -> None:
        self.memo = Memo(folder) if request is None else Memo.open(folder, request)
        self._index: dict[ExampleKey, tuple[str, slice]] = {}
        self._read = lru_cache(maxsize=8)(self.memo.arrays)
        names = self.memo.names()
        damaged = list[DamagedError]()
        for name in names:
            try:
                self._add(name, self.memo.arrays(name))
            except DamagedError as error:
                if request is None:
                    raise DamagedError(f"{error}; run with --keep-scores again") from error
                damaged.append(error)
                self.memo.remove(name)
        if damaged:
            text = "%s; damaged parts of the scores: %d of %d, which are computed again"
            log.warning(text, damaged[0], len(damaged), len(names))

    def write(self, rows: Rows, columns: Columns) -> None:
        """Writes the scores of some whole examples, the rows of their windows, as one part.

        The scores of two models have ``window_ids`` of their own.
        """
        table = {**{name: rows[name] for name in KEYS}, **columns}
        file, line = table["example_keys"][0]
        name = f"part-{file:06d}-{line:09d}.npz"
        self.memo.write_arrays(name, table)
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
        return example_scores(self.columns(key))

    def __getitem__(self, key: ExampleKey) -> WindowScores:
        """Returns the scores of the first model alone."""
        scores = self.scores(key)
        return scores if isinstance(scores, WindowScores) else scores.ranker

    def columns(self, key: ExampleKey) -> Columns:
        if key not in self._index:
            missing = f"the scores in {self.memo.folder} lack input file {key[0]}, line {key[1]}"
            raise Error(f"{missing}: remove that folder and run again")
        part, page = self._index[key]
        return {name: x[page] for name, x in self._read(part).items()}


class StoringScorer(ScorerWrapper):
    """Reads scores of examples from a store; computes and stores those that it lacks.

    Scores are stored as soon as they are there, by the thread that computed them, so that an
    interrupted run loses only what was computed. While instances compute, all time counts as
    ``PREDICT``, that of reading and deciding too. The rows have the column ``example_keys``.
    """

    def __init__(self, inner: Scorer, store: ScoreStore, clock: Clock | None = None) -> None:
        super().__init__(inner)
        self.store = store
        self.parallel_parts = inner.parallel_parts
        self.resumed_windows = self._computing = 0
        self._clock = clock or Clock()
        self._lock = threading.Lock()

    def submit(
        self, rows: Rows, examples: Sequence[Example], progress: Progress = no_progress
    ) -> Future[Columns]:
        with self._clock(PREDICT):
            pages = split_examples(rows, dict(rows))
            keys: list[ExampleKey] = [tuple(page["example_keys"][0].tolist()) for page in pages]
            new = [n for n, key in enumerate(keys) if key not in self.store]
            stored = sum(len(pages[n]["window_ids"]) for n in {*range(len(pages))} - {*new})
            self.resumed_windows += stored
            progress(stored)
            result = Future[Columns]()
            if not new:
                result.set_result(self._stored(keys))
                return result
            new_rows = concatenate([pages[n] for n in new]) if stored else rows

            def store(computed: Future[Columns]) -> None:
                try:
                    columns = computed.result()
                    self.store.write(new_rows, columns)
                    result.set_result(self._stored(keys) if stored else columns)
                except BaseException as error:
                    result.set_exception(error)
                finally:
                    self._count(-1)

            def on_windows(windows: int) -> None:
                self._clock.compiled()
                progress(windows)

            self._count(1)
            computed = self.inner.submit(new_rows, [examples[n] for n in new], on_windows)
            computed.add_done_callback(store)
            return result

    def _stored(self, keys: Sequence[ExampleKey]) -> Columns:
        return concatenate([self.store.columns(key) for key in keys])

    def _count(self, change: int) -> None:
        """Counts the parts that instances are computing while this process does other work."""
        if self.parallel_parts:
            with self._lock:
                self._computing += change
                self._clock.override(PREDICT if self._computing else "")
