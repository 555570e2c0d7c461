"""Scores on disk: parts of several whole examples, each written whole or not at all.

An interrupted run leaves its parts; an equal run takes the examples in them as scored. A run with
``--keep-scores`` leaves them for error analysis and comparisons.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nq.errors import Error
from nq.files import atomic_write, exclusive_lock
from nq.inference.scorer import (
    Progress,
    Rows,
    Scorer,
    ScorerWrapper,
    concatenate,
    example_slices,
    no_progress,
    window_scores,
)
from nq.records import READ, RESCORED, Columns, Example, ExampleKey, IntArray, WindowScores

KEYS = ("example_keys", "window_ids")
REQUEST = "request.json"
LOCK = ".nq-run.lock"
PARTS_IN_MEMORY = 8
OLD_RESCORED = "again-"
"""Prefix of parts in which earlier versions kept rescored examples; they replace other parts."""


@contextlib.contextmanager
def exclusive_run(folder: Path) -> Iterator[None]:
    """Keeps other runs out of a folder, which is created, and removed again if it stays empty.

    Raises:
        Error: another run writes to the folder.
    """
    with exclusive_lock(folder / LOCK, "another run"):
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()


def clear(folder: Path) -> None:
    """Removes the scores in ``folder`` and nothing else; also the folder if it is then empty."""
    for pattern in (REQUEST, "*.npz", "*.tmp"):
        for path in folder.glob(pattern):
            path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


def move(folder: Path, to: Path) -> None:
    """Moves the scores in ``folder`` to another folder of the same file system."""
    to.mkdir(parents=True, exist_ok=True)
    for path in (folder / REQUEST, *folder.glob("*.npz")):
        path.replace(to / path.name)


class ScoreStore:
    """The scores of examples, by file number and line.

    Args:
        folder: of the parts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._index: dict[ExampleKey, tuple[Path, slice]] = {}
        self._load = lru_cache(maxsize=PARTS_IN_MEMORY)(_load)
        paths = sorted(folder.glob("*.npz"), key=lambda p: (p.name.startswith(OLD_RESCORED), p))
        for path in paths:
            with np.load(path) as arrays:
                self._add(path, {name: arrays[name] for name in KEYS})

    @classmethod
    def open(cls, folder: Path, request: Mapping[str, Any]) -> ScoreStore:
        """Returns the store for a request; the scores of another request are removed.

        Args:
            folder: is created.
            request: everything that the scores depend on, as JSON values.
        """
        text = json.dumps(request, sort_keys=True)
        mark = folder / REQUEST
        if not (mark.is_file() and mark.read_text(encoding="utf-8") == text):
            clear(folder)
            folder.mkdir(parents=True, exist_ok=True)
            mark.write_text(text, encoding="utf-8")
        return cls(folder)

    def write(self, rows: Rows, columns: Columns) -> None:
        """Writes the scores of some whole examples as one part.

        Args:
            rows: the columns ``KEYS`` of their windows.
            columns: their scores.
        """
        keys = {name: rows[name] for name in KEYS}
        file, line = keys["example_keys"][0]
        path = self.folder / f"part-{file:06d}-{line:09d}.npz"
        with atomic_write(path) as output:
            np.savez(output, allow_pickle=False, **keys, **columns)
        self._add(path, keys)

    def _add(self, path: Path, keys: Rows) -> None:
        for page in example_slices(keys):
            ids, examples = keys["window_ids"][page], keys["example_keys"][page]
            if np.array_equal(ids[:, 0], np.arange(ids[0, 1])) and (examples == examples[0]).all():
                file, line = examples[0].tolist()
                self._index[file, line] = path, page

    def __iter__(self) -> Iterator[ExampleKey]:
        return iter(sorted(self._index))

    def __contains__(self, key: object) -> bool:
        return key in self._index

    def __getitem__(self, key: ExampleKey) -> WindowScores:
        """Returns the scores of all windows of one example.

        Raises:
            Error: they are missing or not complete.
        """
        return window_scores(self.columns(key))

    def columns(self, key: ExampleKey) -> Columns:
        """Returns all columns of one example.

        Raises:
            Error: they are missing or not complete.
        """
        if key not in self._index:
            raise Error(
                f"the scores of input file {key[0]}, line {key[1]} are missing or not complete in "
                f"{self.folder}: remove that folder and run again"
            )
        path, page = self._index[key]
        return {name: column[page] for name, column in self._load(path).items()}

    def computed(self, key: ExampleKey) -> IntArray:
        """Returns ``[W]`` which windows of an example the model computed, and did not prune."""
        columns = self.columns(key)
        return columns.get(READ, np.ones(len(columns["window_ids"]), np.bool_))


def _load(path: Path) -> Columns:
    with np.load(path) as arrays:
        return dict(arrays)


class StoringScorer(ScorerWrapper):
    """Scores examples that are not in a store and writes them to it; takes the others from it.

    Args:
        inner: computes the scores.
        store: of the same request.

    Attributes:
        stored_windows: windows that were in the store already.
        rescored_examples: examples with a close decision, those in the store included.
        seconds: of all calls, with the writing of the scores.
    """

    def __init__(self, inner: Scorer, store: ScoreStore) -> None:
        super().__init__(inner)
        self.store = store
        self.stored_windows = self.rescored_examples = 0
        self.seconds = 0.0

    def scores(
        self, rows: Rows, examples: Sequence[Example], progress: Progress = no_progress
    ) -> Columns:
        """See ``Scorer.scores``; the rows must have ``example_keys``."""
        started = time.perf_counter()
        pages = example_slices(rows)
        keys: list[ExampleKey] = [
            tuple(rows["example_keys"][page.start].tolist()) for page in pages
        ]
        new = [n for n, key in enumerate(keys) if key not in self.store]
        stored = sum(page.stop - page.start for page in pages)
        if new:
            part = concatenate([{c: x[pages[n]] for c, x in rows.items()} for n in new])
            stored -= len(part["window_ids"])
            columns = self.inner.scores(part, [examples[n] for n in new], progress)
            self.store.write(part, columns)
        self.stored_windows += stored
        progress(stored)
        if len(new) < len(keys):
            columns = concatenate([self.store.columns(key) for key in keys])
        if RESCORED in columns:
            self.rescored_examples += sum(bool(columns[RESCORED][page.start]) for page in pages)
        self.seconds += time.perf_counter() - started
        return columns
