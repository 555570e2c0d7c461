"""Results that are expensive to compute: the parts of a request, kept in a folder.

A part is arrays (``NAME.npz``), values (``NAME.json``) or a folder of files. It is written whole or
not at all, and has checksums. An interrupted computation of an equal request finds the parts that
are complete; a damaged one is computed again. Everything in the folder belongs to the memo.
"""

import contextlib
import json
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from nq import storage
from nq.errors import DamagedError
from nq.records import Columns

log = logging.getLogger(__name__)

REQUEST = "request.json"  # everything that the parts depend on
DIGESTS = "digests.json"  # the SHA-256 of each file of a part that is a folder of files

T = TypeVar("T")


class Memo:
    """The parts in a folder, which need not exist until one is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def open(cls, folder: Path, request: Mapping[str, Any]) -> Self:
        """Returns the memo in a folder, which is created; parts of another request are removed.

        The request is everything that the parts depend on, as JSON values.
        """
        memo = cls(folder)
        if memo.found(REQUEST, "everything is computed again") != json.loads(json.dumps(request)):
            memo.clear()
            folder.mkdir(parents=True)
            memo.write_values(REQUEST, request)
        return memo

    def names(self) -> list[str]:
        """Returns the names of the parts that are arrays, sorted."""
        return sorted(path.name for path in self.folder.glob("*.npz"))

    def arrays(self, name: str) -> Columns:
        """Returns the arrays of a part, or raises ``FileNotFoundError`` or ``DamagedError``."""
        return storage.read_arrays(self.folder / name)

    def write_arrays(self, name: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        storage.write_arrays(self.folder / name, arrays)

    def values(self, name: str) -> dict[str, Any]:
        """Returns the JSON values of a part; errors are those of ``arrays``."""
        return storage.read_json(self.folder / name)

    def write_values(self, name: str, values: Mapping[str, Any]) -> None:
        storage.write_json(self.folder / name, values)

    def found(self, name: str, loss: str) -> dict[str, Any] | None:
        """Returns the values of a part, ``None`` if they are missing or damaged.

        A warning says that they are damaged, and what the ``loss`` means.
        """
        try:
            return self.values(name)
        except FileNotFoundError:
            return None
        except DamagedError as error:
            log.warning("%s; %s", error, loss)
            return None

    def computed(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Returns the values of a part; computes and writes them if they are missing or damaged."""
        if (found := self.found(name, "it is computed again")) is not None:
            return found
        self.write_values(name, compute())
        return self.values(name)

    def files(self, name: str) -> Path:
        """Checks the files of a part and returns its folder; errors are those of ``arrays``."""
        folder = self.folder / name
        for file, digest in storage.read_json(folder / DIGESTS).items():
            if storage.sha256(folder / file) != digest:
                raise DamagedError(f"{folder / file} is damaged: its SHA-256 does not match")
        return folder

    def write_files(self, name: str, write: Callable[[Path], T]) -> T:
        """Writes a part by ``write(new_folder)`` and returns the result of this call.

        The part of a process that was faster stays.
        """
        with storage.unfinished(self.folder) as unfinished:
            new = unfinished / name
            new.mkdir()
            result = write(new)
            digests = {path.name: storage.sha256(path) for path in new.iterdir()}
            storage.write_json(new / DIGESTS, digests)
            with contextlib.suppress(OSError):
                new.rename(self.folder / name)
        return result

    def remove(self, name: str) -> None:
        _remove(self.folder / name)

    def clear(self) -> None:
        """Removes the folder with all that is in it; of a link to a folder, the link."""
        _remove(self.folder)

    def move(self, to: Path) -> None:
        """Moves the arrays and then the request to another folder."""
        to.mkdir(parents=True, exist_ok=True)
        for name in (*self.names(), REQUEST):
            (self.folder / name).rename(to / name)
        storage.sync(to)


def keep_newest(new: Path, pattern: str, count: int) -> None:
    """Removes the oldest of the paths beside ``new`` that match, so that ``count`` stay with it.

    It never removes ``new``, which a clock that was set back makes the oldest.
    """
    others = {*new.parent.glob(pattern)} - {new}
    for old in sorted(others, key=lambda path: path.stat().st_mtime)[: 1 - count]:
        _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
