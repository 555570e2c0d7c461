"""Checks before a command writes to a folder, and the lock and mark while it does."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from nq import __version__
from nq.errors import Error
from nq.files import atomic_write, exclusive_lock
from nq.folders.kinds import KINDS, MARK, Kind, has_sign, mark_of, own_paths

MAX_NAMES_SHOWN = 3


def check(folder: Path, kind: Kind, inputs: Iterable[str | Path] = ()) -> None:
    """Checks that a folder is free or of a kind, and that no input would be overwritten.

    Args:
        folder: where a command is to write; it need not exist.
        kind: what it writes.
        inputs: files, and folders of files, that it reads.

    Raises:
        Error: the folder holds files of others, or an input is among the files to write.
        OSError: the folder cannot be read.
    """
    _check_inputs(folder, kind, map(Path, inputs))
    mark = mark_of(folder)
    if mark == kind.name or has_sign(folder, kind):
        return
    names = _visible_names(folder)
    if names and mark:
        what = KINDS[mark].what if mark in KINDS else f"files of another command ({mark})"
        raise Error(f"{folder} holds {what}; give an empty or a new folder")
    if names:
        shown = ", ".join(names[:MAX_NAMES_SHOWN] + ["…"] * (len(names) > MAX_NAMES_SHOWN))
        raise Error(f"{folder} holds other files ({shown}); give an empty or a new folder")


def _check_inputs(folder: Path, kind: Kind, inputs: Iterable[Path]) -> None:
    written = {_identity(path): path for path in own_paths(folder, kind) if path.is_file()}
    for source in inputs:
        if source.is_dir() and _identity(source) == _identity(folder):
            raise Error(f"the input {source} is the output folder: give another output folder")
        for path in source.iterdir() if source.is_dir() else [source]:
            if path.is_file() and (same := written.get(_identity(path))):
                raise Error(
                    f"the input {path} is the file {same}, which would be written: give another "
                    "output folder"
                )


def _identity(path: Path) -> tuple[int, int] | None:
    """Returns what links to a file or folder share with it; ``None`` if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _visible_names(folder: Path) -> list[str]:
    """Returns the names in a folder, without hidden ones such as ``.gitignore``."""
    try:
        return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return []


def check_writable(folder: Path, kind: Kind | None = None) -> None:
    """Checks that a folder can be created or written, and changes nothing.

    Args:
        folder: the folder.
        kind: of the folder, whose files and folders are checked too.

    Raises:
        Error: a link or a folder is in the place of a file, or the reverse.
        OSError: the folder cannot be created or written.
    """
    paths = (folder, *folder.absolute().parents)
    next(filter(_check_place, paths))
    if kind is None:
        return
    for path in own_paths(folder, kind):
        name = path.relative_to(folder).as_posix()
        _check_type(path, kind.is_file(name), kind.is_folder(name))


def _check_place(path: Path) -> bool:
    """Returns whether a folder exists; raises if it cannot be written, or is something else."""
    if path.is_symlink() and not path.is_dir():
        raise FileNotFoundError(
            f"{path} is a link to {path.readlink()}, which is no folder: give another folder"
        )
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not is_folder:
        raise NotADirectoryError(f"{path} is a file, expected a folder: give another folder")
    _check_access(path)
    return True


def _check_access(folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK) and folder.is_dir():
        raise PermissionError(f"{folder} cannot be written: give another folder, or allow it")


def _check_type(path: Path, may_be_file: bool, may_be_folder: bool) -> None:
    """Raises if a path is not what a command would write there; links to folders are folders."""
    is_folder, is_link = path.is_dir(), path.is_symlink()
    if not (may_be_folder if is_folder else may_be_file and not is_link):
        found = "a link" if is_link else "a folder" if is_folder else "a file"
        expected = "a file" if may_be_file else "a folder"
        raise Error(f"{path} is {found}, expected {expected}: remove it, or give another folder")
    if is_folder:
        _check_access(path)


def check_output_file(path: Path, inputs: Iterable[str | Path] = ()) -> None:
    """Checks that a file can be written, and is no input.

    Raises:
        Error: a link or a folder is in its place, or it is an input.
        OSError: its folder cannot be created or written.
    """
    if path.is_symlink() or path.exists():
        _check_type(path, may_be_file=True, may_be_folder=False)
    check_writable(path.parent)
    for source in map(Path, inputs):
        if path.exists() and source.exists() and source.samefile(path):
            raise Error(f"the input {source} is the file to write: give another file")


@contextlib.contextmanager
def hold(folder: Path, kind: Kind, inputs: Iterable[str | Path] = ()) -> Iterator[None]:
    """Marks a folder, and keeps other commands out of it until the block ends.

    The folder is created, and removed again if the block leaves nothing in it.

    Args:
        folder: where the block writes.
        kind: what it writes.
        inputs: files, and folders of files, that it reads.

    Raises:
        Error: see ``check``, or another command writes to the folder.
        OSError: the folder cannot be created or written.
    """
    check_writable(folder, kind)
    check(folder, kind, inputs)
    is_new = not folder.exists()
    with exclusive_lock(folder / kind.lock, kind.holder):
        try:
            if mark_of(folder) != kind.name:
                with atomic_write(folder / MARK) as file:
                    file.write(json.dumps({"kind": kind.name, "version": __version__}).encode())
            yield
        finally:
            release(folder, kind, is_new)


def release(folder: Path, kind: Kind, remove_empty: bool) -> None:
    """Removes the lock file of a folder, and the mark where nothing else of ours is left.

    Args:
        folder: the folder, of which the caller holds the lock.
        kind: its kind.
        remove_empty: whether the folder is removed if it is empty then.
    """
    with contextlib.suppress(FileNotFoundError):  # somebody removed the folder
        if not {path.name for path in folder.iterdir()} - {MARK, kind.lock}:
            (folder / MARK).unlink(missing_ok=True)
        (folder / kind.lock).unlink(missing_ok=True)
    if remove_empty:
        with contextlib.suppress(OSError):
            folder.rmdir()
