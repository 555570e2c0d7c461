"""Arrays that are expensive to compute: the parts of a request, kept in a folder.

A part is written whole or not at all, and has a checksum. An interrupted computation of an equal
request finds the parts that are complete; a damaged one is removed and computed again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from nq import storage
from nq.errors import DamagedError
from nq.records import Columns

log = logging.getLogger(__name__)

REQUEST, TIMES = "request.json", "times.json"
"""Files beside the parts: what they depend on, and how long their computation took so far."""
PART = re.compile(r"part-\d{6,}(?:-\d{9,})?\.npz")


class Memo:
    """The parts in a folder, which may have files of others too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def open(cls, folder: Path, request: Mapping[str, Any]) -> Self:
        """Returns the memo in a folder, which is created; parts of another request are removed.

        The request is everything that the parts depend on, as JSON values.
        """
        memo, stored = cls(folder), None
        try:
            stored = storage.read_json(folder / REQUEST)
        except FileNotFoundError:
            pass
        except DamagedError as error:
            log.warning("%s; everything is computed again", error)
        if stored != json.loads(json.dumps(request)):
            memo.clear()
            folder.mkdir(parents=True, exist_ok=True)
            storage.write_json(folder / REQUEST, request)
        return memo

    def names(self) -> list[str]:
        """Returns the names of the parts, sorted."""
        return [path.name for path in self._paths() if PART.fullmatch(path.name)]

    def read(self, name: str) -> Columns:
        """Returns the arrays of a part.

        Raises:
            FileNotFoundError, DamagedError: the part is missing or damaged.
        """
        return storage.read_arrays(self.folder / name)

    def write(self, name: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Writes a part."""
        storage.write_arrays(self.folder / name, arrays)

    def remove(self, name: str) -> None:
        """Removes a part."""
        (self.folder / name).unlink(missing_ok=True)

    def clear(self) -> None:
        """Removes all files of the memo and nothing else; the folder too if it is then empty."""
        storage.remove(self._paths())
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def move(self, to: Path) -> None:
        """Moves parts and request to another folder; the request is the last one."""
        to.mkdir(parents=True, exist_ok=True)
        for name in (*self.names(), REQUEST):
            (self.folder / name).rename(to / name)
        storage.sync(to)

    def _paths(self) -> list[Path]:
        """Returns the files of the memo, those included that a killed process began to write."""
        paths = sorted(self.folder.iterdir()) if self.folder.is_dir() else []
        names = (storage.TEMPORARY.sub("", path.name) for path in paths)
        return [
            path
            for path, name in zip(paths, names, strict=True)
            if name in (REQUEST, TIMES) or PART.fullmatch(name)
        ]
