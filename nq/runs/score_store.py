"""Scores of windows on disk: parts of a shard, each written whole or not at all.

A part is an ``.npz`` named after its shard and the number of its first window. ``Results``
finds the windows of an example wherever they lie, holding few parts in memory at a time. What was
computed again lies in parts of a shard ``AGAIN`` and counts instead of what was there before.
"""

from __future__ import annotations

import contextlib
import glob
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nq.files import exclusive_lock
from nq.records import READ, SCORE_COLUMNS, WindowScores

KEYS = ("example_keys", "window_ids")
REQUEST = "request.json"
LOCK = ".nq-run.lock"
DIGITS = 12
PARTS_IN_MEMORY = 8
AGAIN = Path("again")

Part = Mapping[str, np.ndarray[Any, Any]]


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keeps other runs out of a folder, which is made, and goes again if it is empty then.

    Raises:
        Error: another run is there.
    """
    with exclusive_lock(folder / LOCK, "another run"):
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()


def claim(folder: Path, request: Mapping[str, Any]) -> None:
    """Makes ``folder`` this request's; the results of another one are removed."""
    text = json.dumps(request, sort_keys=True)
    mark = folder / REQUEST
    if mark.is_file() and mark.read_text(encoding="utf-8") == text:
        return
    clear(folder)
    folder.mkdir(parents=True, exist_ok=True)
    mark.write_text(text, encoding="utf-8")


def clear(folder: Path) -> None:
    """Removes the results in ``folder`` and nothing else; the folder too, if it is empty then."""
    for pattern in (REQUEST, "*.npz", "*.tmp"):
        for path in folder.glob(pattern):
            path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


def move(folder: Path, to: Path) -> None:
    """Moves the results in ``folder`` to one of another name beside it."""
    to.mkdir(parents=True, exist_ok=True)
    for path in (folder / REQUEST, *folder.glob("*.npz")):
        path.replace(to / path.name)


def shards(folder: Path) -> tuple[Path, ...]:
    """The shards, by name alone, whose results lie in ``folder``."""
    found = {Path(path.stem[: -DIGITS - 1]) for path in folder.glob("*.npz")}
    return tuple(sorted(found - {AGAIN}))


def _parts(folder: Path, shard: Path) -> list[Path]:
    digits = "[0-9]" * DIGITS
    return sorted(folder.glob(f"{glob.escape(shard.stem)}-{digits}.npz"))


def windows_done(folder: Path, shard: Path) -> int:
    """How many windows of a shard, from its first on, lie in finished parts."""
    parts = _parts(folder, shard)
    if not parts:
        return 0
    first = int(parts[-1].stem.rsplit("-", 1)[1])
    with np.load(parts[-1]) as arrays:
        return first + len(arrays["window_ids"])


def write_part(folder: Path, shard: Path, first: int, arrays: Part) -> None:
    """Writes the scores of a shard's windows from number ``first`` on.

    ``READ`` says of each window whether the model computed it; without it all are.
    """
    path = folder / f"{shard.stem}-{first:0{DIGITS}d}.npz"
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    temporary.replace(path)


class Results:
    """The scores of every example, by (file number, line).

    Args:
        folder: where the parts lie.
        shards: the shards that they belong to.

    ``again`` are the examples that were computed again.
    """

    def __init__(self, folder: Path, shards: tuple[Path, ...]) -> None:
        self._paths = [path for shard in shards for path in _parts(folder, shard)]
        before = len(self._paths)
        self._paths += _parts(folder, AGAIN)
        rows = list(self._index())
        index = np.concatenate(rows) if rows else np.empty((0, 7), np.int32)
        is_again, example = index[:, 4] >= before, index[:, 0].astype(np.int64) << 32 | index[:, 1]
        self.again = {(int(file), int(line)) for file, line in index[is_again, :2]}
        index = index[is_again | ~np.isin(example, example[is_again])]
        index = index[np.lexsort(index[:, 2::-1].T)]
        starts = np.flatnonzero(np.any(np.diff(index[:, :2], axis=0, prepend=-1), axis=1))
        self._index_rows = index
        self._groups = {
            (int(index[a, 0]), int(index[a, 1])): (a, b)
            for a, b in pairwise([*starts.tolist(), len(index)])
        }
        self._load = lru_cache(maxsize=PARTS_IN_MEMORY)(self._read)

    def _index(self) -> Iterator[np.ndarray[Any, Any]]:
        """Rows of (file, line, window, windows in all, part, row in part, whether read)."""
        for number, path in enumerate(self._paths):
            with np.load(path) as arrays:
                keys, ids = arrays["example_keys"], arrays["window_ids"]
                read = arrays[READ] if READ in arrays else np.ones(len(keys), bool)
            part = np.full(len(keys), number)
            yield np.column_stack([keys, ids, part, np.arange(len(keys)), read]).astype(np.int32)

    def _read(self, part: int) -> Part:
        with np.load(self._paths[part]) as arrays:
            return {name: arrays[name] for name in SCORE_COLUMNS}

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._groups)

    def read(self, key: tuple[int, int]) -> np.ndarray[Any, Any]:
        """``[W]`` which windows of an example the model computed, and did not leave out."""
        start, end = self._groups[key]
        return self._index_rows[start:end, 6] > 0

    def __contains__(self, key: object) -> bool:
        return key in self._groups

    def __getitem__(self, key: tuple[int, int]) -> WindowScores:
        """The scores of all windows of one example.

        Raises:
            ValueError: windows are missing or there twice.
        """
        start, end = self._groups.get(key, (0, 0))
        rows = self._index_rows[start:end]
        total = int(rows[0, 3]) if len(rows) else 0
        if not total or not np.array_equal(rows[:, 2], np.arange(total)):
            raise ValueError(
                f"the scores of input file {key[0]}, line {key[1]} are not complete "
                f"({len(rows)} of {total or 'unknown'} windows); remove the folder of windows "
                "and run again"
            )
        order = np.argsort(rows[:, 4], kind="stable")
        by_part = [
            {name: value[rows[rows[:, 4] == part, 5]] for name, value in self._load(part).items()}
            for part in np.unique(rows[:, 4]).tolist()
        ]
        back = np.argsort(order)
        return WindowScores(
            **{name: np.concatenate([p[name] for p in by_part])[back] for name in SCORE_COLUMNS}
        )
