"""Removes what commands leave in folders: prepared windows, unfinished runs, caches.

Only paths that a ``Kind`` of folder names are removed, and only while no process that uses them is
alive. What a command was run for (predictions, the output of ``nq preprocess``) and the state of
an unfinished training stay unless they are asked for; models always stay.
"""

import contextlib
import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nq import storage
from nq.errors import DamagedError, Error
from nq.memo import Memo
from nq.preprocess.shards import PREPARED
from nq.runs.folder import JOB, RUN
from nq.storage import LOCK, MARK, PART, TEMPORARY, UNFINISHED, WORK, Kind
from nq.training.job import PROGRESS, STATE, TRAINING

log = logging.getLogger(__name__)

KINDS = {kind.name: kind for kind in (RUN, PREPARED, TRAINING, PART)}
SHARED_WINDOWS = re.compile(r"windows-[0-9a-f]{12}")
"""Names of the folders of windows that runs make for themselves."""
RESULT = "--runs removes it"
FAILED = "cannot be removed"
CACHES = {
    "graphs": "converted models, which are made again when they are needed",
    "vectors": "vectors of documents, which are made again when they are needed",
}
"""What the folders in the user's cache have."""


@dataclass
class Item:
    """Paths in a folder that are removed together; the content of a folder precedes it.

    ``kept`` tells why they are not removed; it is empty if they are.
    """

    folder: Path
    what: str
    paths: Sequence[Path]
    kept: str = ""
    bytes: int = 0


def clean(
    roots: Sequence[Path],
    remove_results: bool = False,
    dry_run: bool = False,
    caches: bool = False,
) -> list[Item]:
    """Removes what commands left in folders and in all folders below them; returns it by path.

    The folders must exist; ``caches`` are converted models and vectors in the user's cache.
    """
    items = list(_items(roots, "" if remove_results else RESULT))
    for name, what in CACHES.items():
        folder = storage.cache_folder() / name
        if caches and folder.is_dir():
            paths = sorted(folder.glob("[!.]*/**/*"), reverse=True)
            items.append(Item(folder, what, (*paths, *folder.glob("[!.]*"), folder)))
    for item in items:
        for path in item.paths:
            with contextlib.suppress(FileNotFoundError):  # it is gone by now
                status = path.lstat()
                item.bytes += 0 if stat.S_ISDIR(status.st_mode) else status.st_size
        holders = filter(None, map(storage.lock_holder, _locks(item.folder)))
        holder = next(holders, "")
        if holder:
            item.kept = f"in use by {holder}"
    for item in reversed(items):  # what is inside comes first
        if item.kept or dry_run:
            continue
        lock = item.folder / LOCK
        is_ours = lock.exists() or (item.folder / MARK).is_file()  # not that of the cache
        try:
            with storage.exclusive_lock(lock) if is_ours else contextlib.nullcontext():
                storage.remove(item.paths)
                storage.release(item.folder, remove_empty=True)
        except (OSError, Error) as error:
            item.kept = f"{FAILED}: {error}"
    return items


def _items(roots: Iterable[Path], kept: str) -> Iterator[Item]:
    """Yields what commands left in folders and below them, by path; links are not followed.

    ``kept`` is that of results.
    """
    seen = set[Path]()
    left = list[Path]()
    for root in roots:
        list(root.iterdir())  # raises for a folder that does not exist or cannot be read
        folders = [root]
        for name, below, files in os.walk(root, onerror=lambda error: log.warning("%s", error)):
            path = Path(name)
            names = {TEMPORARY.sub("", name) for name in files}
            is_ours = LOCK in names or path.name.startswith(UNFINISHED)
            if is_ours and not below and names <= {LOCK, MARK} and MARK not in files:
                left.append(path)  # its mark was just removed, or not made yet
            below[:] = [
                n
                for n in below
                if n[0] != "." or n.startswith(UNFINISHED) or (path / n / MARK).is_file()
            ]
            folders += [path / n for n in below if not (path / n).is_symlink()]
        for folder in sorted(folders):
            kind = KINDS.get(storage.kind_of(folder))
            if kind and folder.resolve() not in seen:
                seen.add(folder.resolve())
                with contextlib.suppress(FileNotFoundError):  # a run has just removed the folder
                    yield from list(_items_of(folder, kind, folder == root, kept))
            elif folder in left:
                yield Item(folder, "left by a killed command", ())


def _items_of(folder: Path, kind: Kind, is_named: bool, kept: str) -> Iterator[Item]:
    """Yields what is in one folder; the user may have named this very folder."""
    paths = list(storage.own_paths(folder, kind))
    results: Sequence[Path] = ()
    what = f"unfinished {kind.name}"
    if kind is RUN:
        left = folder / WORK
        results = [p for p in paths if not TEMPORARY.search(p.name) and left not in (p, p.parent)]
        paths = [path for path in paths if path not in results]
        if (folder / JOB).is_file():
            what = "left by a run that was killed"
    elif kind is PREPARED:
        what = "prepared windows"
        is_training = storage.kind_of(folder.parent.parent) == TRAINING.name
        if not (is_named or is_training or SHARED_WINDOWS.fullmatch(folder.name)):
            paths, results = [], paths
    elif kind is TRAINING:
        paths = [path for path in paths if path.relative_to(folder).parts[0] == WORK]
        what = "state of a finished training"
        if not _is_trained(folder):
            what = "state of an unfinished training"
            paths, results = [], paths
    names = {path.name for path in folder.iterdir()}
    if paths or (not results and (LOCK in names or names == {MARK})):
        yield Item(folder, what, paths)
    if results:
        yield Item(
            folder,
            "results of a run" if kind is RUN else what,
            results,
            kept,
        )


def _is_trained(folder: Path) -> bool:
    """Returns whether a training has made all steps and written the model after its last state."""
    model = folder / "model.safetensors"
    state = folder / STATE
    with contextlib.suppress(OSError, DamagedError, LookupError):
        progress = Memo(state).values(PROGRESS)
        written = (state / PROGRESS).stat().st_mtime
        return progress["step"] == progress["total"] and written <= model.stat().st_mtime
    return False


def _locks(folder: Path) -> Iterator[Path]:
    """Yields the lock files of those who may use a folder.

    The windows of a folder are read by the runs beside them, or by the run or training around
    them, which hold the locks of their own folders.
    """
    yield folder / LOCK
    yield from (parent / LOCK for parent in folder.absolute().parents[:2])
    if storage.kind_of(folder) == PREPARED.name:
        for lock in folder.absolute().parent.glob(f"*/{LOCK}"):
            if storage.kind_of(lock.parent) == RUN.name:
                yield lock
