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
    """Opens ``path`` for writing; what was there stays until all is written, or for good."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def exclusive_lock(path: Path, who: str) -> Iterator[None]:
    """Holds the lock file ``path``, which is made with its folder; let go however a process ends.

    Args:
        path: the file. The holder may remove it, and its folder.
        who: what else may hold it, for the message: "another run".

    Raises:
        Error: another process holds it.
        OSError: it cannot be made.
    """
    file = None
    while file is None:
        with contextlib.suppress(FileExistsError):  # of a file the opening of the lock tells
            path.parent.mkdir(parents=True)
        file = _held(path, who)
    with file:
        yield


def _held(path: Path, who: str) -> IO[str] | None:
    """The file, locked; ``None`` if its last holder has just removed it."""
    with contextlib.ExitStack() as closing:
        try:
            file = closing.enter_context(path.open("w"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.path.samestat(os.fstat(file.fileno()), path.stat())
        except FileNotFoundError:
            return None
        except BlockingIOError as error:
            raise Error(
                f"{who} writes to {path.parent}; wait for it, or give another folder"
            ) from error
        if not same:
            return None
        closing.pop_all()
        return file
