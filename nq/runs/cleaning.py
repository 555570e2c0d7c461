"""Removes what commands leave in folders: prepared windows, unfinished runs, caches.

Only paths that ``nq.folders`` knows as ours are removed, and only while no process that uses them
is alive. What a command was run for (predictions, models, the output of ``nq preprocess``) and the
state of an unfinished training stay unless they are asked for.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nq import folders
from nq.errors import Error
from nq.files import TEMPORARY, exclusive_lock, lock_holder
from nq.folders import CONVERSION, KINDS, MARK, RUN, TRAINING, WINDOWS, Kind
from nq.preprocess.store import UNFINISHED
from nq.runs.choices import cache_file
from nq.runs.result import JOB, UNFINISHED_SCORES

log = logging.getLogger(__name__)

SHARED_WINDOWS = re.compile(r"windows-[0-9a-f]{12}")
"""Names of the folders of windows that runs make for themselves."""
TRAINED_MODEL = "model.safetensors"
TRAINING_STATE, TEACHER_PART = "training/training_state.json", "training/teacher/*"
TOO_NEW, RESULT, FAILED = "too new", "--runs removes it", "cannot be removed"


@dataclass(frozen=True)
class Item:
    """Paths that are removed together, or not.

    Args:
        folder: the folder that they are in.
        what: what they are, for the user.
        paths: of files and folders, the content of a folder before it.
        kind: of the folder, if it has one.
        is_result: whether they stay unless results are to be removed too.
        bytes: size of the files.
        age_s: seconds since the newest file was changed.
        kept: why they are not removed; empty if they are.
    """

    folder: Path
    what: str
    paths: tuple[Path, ...]
    kind: Kind | None = None
    is_result: bool = False
    bytes: int = 0
    age_s: float = 0.0
    kept: str = ""


def clean(
    roots: Sequence[Path],
    older_than_s: float = 0.0,
    remove_results: bool = False,
    dry_run: bool = False,
    caches: bool = False,
) -> list[Item]:
    """Removes what commands left in folders and in all folders below them.

    Args:
        roots: the folders.
        older_than_s: keep what was changed in so many seconds.
        remove_results: whether results are removed too.
        dry_run: change nothing.
        caches: whether caches in the user's home folder are removed too.

    Returns:
        All that was found, by path.

    Raises:
        OSError: a folder does not exist, or cannot be read.
    """
    items = list(find(roots))
    if caches:
        items += _caches()
    items = [_decide(item, older_than_s, remove_results) for item in map(_measured, items)]
    if not dry_run:
        items = [_remove(item) for item in reversed(items)][::-1]  # what is inside comes first
    return items


def find(roots: Iterable[Path]) -> Iterator[Item]:
    """Yields what commands left in folders and below them, by path; links are not followed."""
    seen = set[Path]()
    for root in roots:
        for folder in sorted([root, *_folders_below(root)]):
            kind = folders.kind_of(folder)
            if kind and folder.resolve() not in seen:
                seen.add(folder.resolve())
                with contextlib.suppress(FileNotFoundError):  # a run has just removed the folder
                    yield from list(_items(folder, kind, is_named=folder == root))


def _folders_below(root: Path) -> Iterator[Path]:
    list(root.iterdir())  # raises for a folder that does not exist or cannot be read
    for name, below, _ in os.walk(root, onerror=lambda error: log.warning("%s", error)):
        path = Path(name)
        below[:] = [n for n in below if not n.startswith(".") or (path / n / MARK).is_file()]
        yield from (path / n for n in below if not (path / n).is_symlink())


def _items(folder: Path, kind: Kind, is_named: bool) -> Iterator[Item]:
    """Yields what is in a folder.

    Args:
        folder: the folder.
        kind: its kind.
        is_named: whether the user named this very folder.
    """
    paths = list(folders.own_paths(folder, kind))
    if kind is RUN:
        left = [path for path in paths if _is_left(path.relative_to(folder))]
        kept = [path for path in paths if path not in left]
        is_finished = (folder / JOB).is_file()
        what = "left by a run that was killed" if is_finished else "unfinished run"
        yield from _item(folder, kind, what, left)
        yield from _item(folder, kind, "results of a run", kept, is_result=True)
    elif kind is WINDOWS:
        is_cache = is_named or SHARED_WINDOWS.fullmatch(folder.name) or _in_training(folder)
        yield from _item(folder, kind, "prepared windows", paths, is_result=not is_cache)
    elif kind is TRAINING:
        state = [path for path in paths if path.relative_to(folder).parts[0] == "training"]
        is_finished = _is_trained(folder, state)
        what = "state of a finished training" if is_finished else "state of an unfinished training"
        yield from _item(folder, kind, what, state, is_result=not is_finished)
    elif kind is CONVERSION:
        yield from _item(folder, kind, "unfinished conversion", paths)


def _item(
    folder: Path, kind: Kind, what: str, paths: Sequence[Path], is_result: bool = False
) -> Iterator[Item]:
    """Yields one item, if there is anything to remove: a path, a lock, or a mark alone."""
    names = {path.name for path in folder.iterdir()}
    if paths or (not is_result and (kind.lock in names or names == {MARK})):
        yield Item(folder, what, tuple(paths), kind, is_result)


def _in_training(folder: Path) -> bool:
    return folders.kind_of(folder.parent.parent) is TRAINING


def _is_left(path: Path) -> bool:
    is_unfinished = path.parts[0] == UNFINISHED_SCORES or path.parts[0].startswith(UNFINISHED)
    return is_unfinished or path.suffix == TEMPORARY


def _is_trained(folder: Path, state: Sequence[Path]) -> bool:
    """Returns whether the model was written after the last state of its training."""
    model = folder / TRAINED_MODEL
    saved = [path for path in state if path.match(TRAINING_STATE) or path.match(TEACHER_PART)]
    return model.is_file() and all(
        path.stat().st_mtime <= model.stat().st_mtime for path in saved if path.is_file()
    )


def _caches() -> Iterator[Item]:
    cache = cache_file()
    if cache.is_file():
        paths = (cache, cache.parent)
        yield Item(cache.parent, "choices of --profile auto", paths)


def _measured(item: Item) -> Item:
    """Returns an item with its size and its age."""
    files = list(_statuses(item.paths))
    marks = _statuses([item.folder / MARK])
    changed = max((file.st_mtime for file in (*files, *marks)), default=time.time())
    size = sum(file.st_size for file in files)
    return replace(item, bytes=size, age_s=max(0.0, time.time() - changed))


def _statuses(paths: Iterable[Path]) -> Iterator[os.stat_result]:
    """Yields the statuses of the files that are still there."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode):
                yield status


def _decide(item: Item, older_than_s: float, remove_results: bool) -> Item:
    """Returns an item with the reason why it is kept, if there is one."""
    holder = next(filter(None, map(lock_holder, _locks(item))), "")
    if holder:
        return replace(item, kept=f"in use by {holder}")
    if item.is_result and not remove_results:
        return replace(item, kept=RESULT)
    return replace(item, kept=TOO_NEW if item.age_s < older_than_s else "")


def _locks(item: Item) -> Iterator[Path]:
    """Yields the lock files of those who may use an item.

    The windows of a folder are read by the runs beside them, or by the run or training around
    them, which hold the locks of their own folders.
    """
    if item.kind is None:
        return
    for folder in (item.folder, *item.folder.absolute().parents[:2]):
        yield from (folder / kind.lock for kind in KINDS.values())
    if item.kind is WINDOWS:
        yield from item.folder.absolute().parent.glob(f"*/{RUN.lock}")


def _remove(item: Item) -> Item:
    """Removes an item, unless it is kept; returns it with the reason if it cannot be removed."""
    if item.kept:
        return item
    try:
        if item.kind is None:
            folders.remove(item.paths)
            return item
        with exclusive_lock(item.folder / item.kind.lock, item.kind.holder):
            folders.remove(item.paths)
            folders.release(item.folder, item.kind, remove_empty=True)
    except (OSError, Error) as error:
        return replace(item, kept=f"{FAILED}: {error}")
    return item
