"""Files that are written whole or not at all, and locks that one process holds at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from nq.errors import Error

TEMPORARY = ".tmp"
"""Ends the name of a file while ``atomic_write`` writes it."""
LOCK_ATTEMPTS = 1000
PID_DIGITS = 20
NEVER_WAIT = os.O_NOFOLLOW | os.O_NONBLOCK
"""Opens neither the target of a link nor, waiting for its other end, a pipe."""


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Opens ``path`` for writing; its former content stays until all is written.

    The file is written under another name, and when the block ends without an error it is synced
    and renamed, so that a crash of the machine leaves the former content or the whole new one.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    temporary.unlink(missing_ok=True)  # a killed process left it, or it is a link to elsewhere
    try:
        with open(temporary, "xb") as file:
            yield file
        publish(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def publish(file: Path, path: Path) -> None:
    """Renames a closed file to ``path`` when its content is on the disk, and so is the name.

    Args:
        file: in the same file system as ``path``.
        path: the name, which another file may have until now.
    """
    sync(file)
    file.replace(path)
    sync(path.parent)


def file_status(path: str | Path) -> tuple[int, ...]:
    """Returns size, device, inode and times (ns) of a file; it has changed if these have."""
    status = Path(path).stat()
    place = status.st_dev, status.st_ino
    return status.st_size, *place, status.st_mtime_ns, status.st_ctime_ns


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk.

    Some file systems cannot sync a folder, which then is as safe as they are.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def exclusive_lock(path: Path, holder: str) -> Iterator[None]:
    """Holds an exclusive lock on the file ``path``; the system releases it with the process.

    Args:
        path: the lock file; it is created with its folder, and the holder may remove both.
        holder: names the possible other holder in the error, such as "another run".

    Raises:
        Error: another process holds the lock.
        OSError: the file cannot be created, or is a link.
    """
    for _ in range(LOCK_ATTEMPTS):
        with contextlib.suppress(FileExistsError):  # opening the lock reports a file in the way
            path.parent.mkdir(parents=True)
        file = _lock(path, holder)
        if file:
            break
    else:
        raise FileNotFoundError(f"{path.parent} cannot be created: give another folder")
    with file:
        file.write(f"{os.getpid()}\n".encode())
        yield


def _lock(path: Path, holder: str) -> IO[bytes] | None:
    """Returns the locked, empty file, or ``None`` if its last holder has just removed it."""
    with contextlib.ExitStack() as closing:
        try:
            number = os.open(path, NEVER_WAIT | os.O_RDWR | os.O_CREAT, 0o666)
            file = closing.enter_context(open(number, "r+b", buffering=0))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.path.samestat(os.fstat(number), path.stat())
        except FileNotFoundError:
            return None
        except BlockingIOError as error:
            raise Error(
                f"{holder} writes to {path.parent} ({_process(file)}); wait for it, or give "
                "another folder"
            ) from error
        if not same:
            return None
        file.truncate(0)
        closing.pop_all()
        return file


def lock_holder(path: Path) -> str:
    """Returns the process that holds the lock file ``path``, empty if none; changes nothing."""
    try:
        number = os.open(path, NEVER_WAIT | os.O_RDONLY)
        with open(number, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _process(file)
    except OSError:  # there is none
        return ""
    return ""


def _process(file: IO[bytes]) -> str:
    number = file.read(PID_DIGITS).decode("ascii", "replace").strip()
    return f"process {number}" if number else "a process"
