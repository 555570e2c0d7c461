"""Scores on disk: parts of several whole examples, each written whole or not at all.

An interrupted run leaves its parts; an equal run takes the examples in them as scored. A run with
``--keep-scores`` leaves them for error analysis and comparisons.

Parts have a checksum. A part that is damaged is removed and computed again, since a run computes
the same bytes; who only reads scores gets an error. Parts of earlier versions have neither checksum
nor digests of their examples.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nq import storage
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
)
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
from nq.runs.phases import PREDICT, PhaseTimer
from nq.storage import RUN, TEMPORARY, sync

log = logging.getLogger(__name__)

KEYS = ("example_keys", "window_ids")
DIGESTS = "example_digests"
"""Optional column: the digest of the window's example (``nq.preprocess.identity``)."""
REQUEST, TIMES = "request.json", "times.json"
PARTS_IN_MEMORY = 8
OLD_RESCORED = "again-"
"""Prefix of parts in which earlier versions kept rescored examples; they replace other parts."""


def own_files(folder: Path) -> list[Path]:
    """Returns the files in a folder that have the names of scores, by name."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in paths if RUN.is_file(f"scores/{path.name}"))


def clear(folder: Path) -> None:
    """Removes the scores in ``folder`` and nothing else; also the folder if it is then empty."""
    for path in own_files(folder):
        path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


def copy(folder: Path, to: Path) -> None:
    """Gives the scores in ``folder`` a second place, by hard links where the file system has them.

    They remain in ``folder``, so that an interruption does not leave some here and some there.
    """
    to.mkdir(parents=True, exist_ok=True)
    for path in own_files(folder):
        if path.name.endswith(TEMPORARY) or path.name == TIMES:
            continue
        try:
            os.link(path, to / path.name)
        except OSError:
            shutil.copyfile(path, to / path.name)
            sync(to / path.name)
    sync(to)


class ScoreStore:
    """The scores of examples, by file number and line.

    Args:
        folder: of the parts.
        repair: remove damaged parts, so that their examples are missing.

    Raises:
        DamagedError: a part is damaged, without ``repair``.
    """

    def __init__(self, folder: Path, repair: bool = False) -> None:
        self.folder = folder
        self._index: dict[ExampleKey, tuple[Path, slice, int | None]] = {}
        self._load = lru_cache(maxsize=PARTS_IN_MEMORY)(_load)
        paths = [path for path in own_files(folder) if path.suffix == ".npz"]
        paths.sort(key=lambda path: path.name.startswith(OLD_RESCORED))
        damaged: list[DamagedError] = []
        for path in paths:
            try:
                self._add(path, _load(path))
            except DamagedError as error:
                if not repair:
                    raise DamagedError(f"{error}; run with --keep-scores again") from error
                damaged.append(error)
                path.unlink()
        if damaged:
            log.warning(
                "%s; damaged parts of the scores: %d of %d, which are computed again",
                *(damaged[0], len(damaged), len(paths)),
            )

    @classmethod
    def open(cls, folder: Path, request: Mapping[str, Any]) -> ScoreStore:
        """Returns the store for a request; scores of another request are removed.

        Args:
            folder: is created.
            request: everything that the scores depend on, as JSON values.
        """
        mark, found = folder / REQUEST, None
        try:
            found = storage.read_json(mark)
        except FileNotFoundError:
            pass
        except DamagedError as error:
            log.warning("%s; all windows are computed again", error)
        if found != json.loads(json.dumps(request)):
            clear(folder)
            folder.mkdir(parents=True, exist_ok=True)
            storage.write_json(mark, request)
        return cls(folder, repair=True)

    def write(self, rows: Rows, columns: Columns) -> None:
        """Writes the scores of some whole examples as one part.

        Args:
            rows: the columns ``KEYS`` of their windows, and ``DIGESTS`` if it is known.
            columns: their scores; those of a cascade have keys of their own.
        """
        keys = {name: rows[name] for name in (*KEYS, DIGESTS) if name in rows}
        table = {**keys, **columns}
        file, line = table["example_keys"][0]
        path = self.folder / f"part-{file:06d}-{line:09d}.npz"
        storage.write_arrays(path, table)
        self._add(path, table)

    def _add(self, path: Path, keys: Rows) -> None:
        for page in example_slices(keys):
            ids, examples = keys["window_ids"][page], keys["example_keys"][page]
            if np.array_equal(ids[:, 0], np.arange(ids[0, 1])) and (examples == examples[0]).all():
                file, line = examples[0].tolist()
                digest = int(keys[DIGESTS][page.start]) if DIGESTS in keys else None
                self._index[file, line] = path, page, digest

    def discard_other(self, key: ExampleKey, digest: int) -> None:
        """Removes the part with the scores of another example that was at the same place.

        Args:
            key: file number and line of an example.
            digest: of the example.
        """
        path, _, stored = self._index.get(key, (None, None, None))
        if path is not None and stored not in (digest, None):
            path.unlink()
            self._index = {k: entry for k, entry in self._index.items() if entry[0] != path}
            self._load.cache_clear()

    def __iter__(self) -> Iterator[ExampleKey]:
        return iter(sorted(self._index))

    def __contains__(self, key: object) -> bool:
        return key in self._index

    def __getitem__(self, key: ExampleKey) -> WindowScores:
        """Returns the scores of all windows of one example, without those of a second model.

        Raises:
            Error: they are missing or not complete.
        """
        scores = self.scores(key)
        return scores if isinstance(scores, WindowScores) else scores.ranker

    def scores(self, key: ExampleKey) -> Scores:
        """Returns all scores of one example.

        Raises:
            Error: they are missing or not complete.
        """
        return example_scores(self.columns(key))

    def columns(self, key: ExampleKey) -> Columns:
        """Returns the columns of one example, except the keys' ``DIGESTS``.

        Raises:
            Error: they are missing or not complete, or were damaged meanwhile.
        """
        if key not in self._index:
            raise Error(
                f"the scores of input file {key[0]}, line {key[1]} are missing or not complete in "
                f"{self.folder}: remove that folder and run again"
            )
        path, page, _ = self._index[key]
        columns = self._load(path)
        return {name: column[page] for name, column in columns.items() if name != DIGESTS}

    def computed(self, key: ExampleKey) -> IntArray:
        """Returns ``[W]`` which windows of an example the model computed, and did not prune."""
        columns = self.columns(key)
        return columns.get(READ, np.ones(len(columns["window_ids"]), np.bool_))


def _load(path: Path) -> Columns:
    columns = storage.read_arrays(path)
    if not set(KEYS) <= columns.keys():
        raise DamagedError(f"{path} is damaged: expected the arrays {', '.join(KEYS)}")
    return columns


@dataclass(frozen=True, eq=False)
class SplitPart:
    """A part whose examples are in the store or are to be computed.

    Args:
        rows: windows of all examples.
        keys: of all examples, in order.
        stored: the columns of those in the store.
        new_rows, new: windows and examples that are to be computed.
    """

    rows: Rows
    keys: Sequence[ExampleKey]
    stored: Mapping[ExampleKey, Columns]
    new_rows: Rows
    new: Sequence[Example]


class StoringScorer(ScorerWrapper):
    """Scores examples that are not in a store and writes them to it; takes the others from it.

    Args:
        inner: computes the scores.
        store: of the same request.
        timer: gets the time of all calls, with the writing of the scores.

    Attributes:
        stored_windows: windows that were in the store already.
        rescored_examples: examples with a close decision, those in the store included.
        reader_windows: windows of the second model, those in the store included.
    """

    def __init__(self, inner: Scorer, store: ScoreStore, timer: PhaseTimer | None = None) -> None:
        super().__init__(inner)
        self.store, self.timer = store, timer or PhaseTimer()
        self.stored_windows = self.rescored_examples = self.reader_windows = 0

    def scores(
        self, rows: Rows, examples: Sequence[Example], progress: Progress = no_progress
    ) -> Columns:
        """See ``Scorer.scores``; the rows must have ``example_keys``."""
        with self.timer(PREDICT):
            part = self.split(rows, examples, progress)
            computed: Columns = {}
            if part.new:
                computed = self.inner.scores(part.new_rows, part.new, progress)
            return self.complete(part, computed)

    def split(
        self, rows: Rows, examples: Sequence[Example], progress: Progress = no_progress
    ) -> SplitPart:
        """Returns which examples of a part are to be computed, with the scores of the others.

        Args:
            rows, examples: see ``scores``.
            progress: receives the number of windows that are in the store.
        """
        pages = example_slices(rows)
        keys: list[ExampleKey] = [
            tuple(rows["example_keys"][page.start].tolist()) for page in pages
        ]
        if DIGESTS in rows:
            for key, page in zip(keys, pages, strict=True):
                self.store.discard_other(key, int(rows[DIGESTS][page.start]))
        new = [n for n, key in enumerate(keys) if key not in self.store]
        # The columns are read now, since another part may discard those of a part that changed.
        known = {key: self.store.columns(key) for key in keys if key in self.store}
        stored = sum(p.stop - p.start for p, key in zip(pages, keys, strict=True) if key in known)
        self.stored_windows += stored
        progress(stored)
        tables = [{name: column[pages[n]] for name, column in rows.items()} for n in new]
        new_rows = concatenate(tables) if tables else {}
        return SplitPart(rows, keys, known, new_rows, [examples[n] for n in new])

    def complete(self, part: SplitPart, computed: Columns) -> Columns:
        """Stores what was computed of a part; returns the columns of the whole part.

        Args:
            part: made by ``split``.
            computed: the scores of its new examples.
        """
        columns, rows = computed, part.rows
        if part.new:
            self.store.write(part.new_rows, computed)
        if part.stored:
            tables = (part.stored.get(key) or self.store.columns(key) for key in part.keys)
            columns = concatenate(list(tables))
        if RESCORED in columns:
            scored = example_slices({**rows, **columns})
            self.rescored_examples += sum(bool(columns[RESCORED][page.start]) for page in scored)
        if SECOND_WINDOW in columns:
            self.reader_windows += int((columns[SECOND_WINDOW] >= 0).sum())
        return columns
