"""Files that are written whole or not at all, and locks that one process holds at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from nq.errors import Error


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Opens ``path`` for writing; its former content stays until all is written.

    The file is written under another name and renamed when the block ends without an error.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def exclusive_lock(path: Path, holder: str) -> Iterator[None]:
    """Holds an exclusive lock on the file ``path``; the system releases it with the process.

    Args:
        path: the lock file; it is created with its folder, and the holder may remove both.
        holder: names the possible other holder in the error, such as "another run".

    Raises:
        Error: another process holds the lock.
        OSError: the file cannot be created.
    """
    file = None
    while file is None:
        with contextlib.suppress(FileExistsError):  # opening the lock reports a file in the way
            path.parent.mkdir(parents=True)
        file = _lock(path, holder)
    with file:
        yield


def _lock(path: Path, holder: str) -> IO[str] | None:
    """Returns the locked file, or ``None`` if its last holder has just removed it."""
    with contextlib.ExitStack() as closing:
        try:
            file = closing.enter_context(path.open("w"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.path.samestat(os.fstat(file.fileno()), path.stat())
        except FileNotFoundError:
            return None
        except BlockingIOError as error:
            raise Error(
                f"{holder} writes to {path.parent}; wait for it, or give another folder"
            ) from error
        if not same:
            return None
        closing.pop_all()
        return file
