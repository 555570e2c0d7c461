"""Vectors of texts, and what is known of documents, in a file of the user's cache.

The file is an SQLite database, named by a digest of the model and of its compute type. Its values
have checksums. A file that is damaged is made again, which one line tells; where it cannot be read
or written, because a disk is full or read-only, everything works without it.
"""

import contextlib
import logging
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from nq import storage
from nq.errors import DamagedError
from nq.memo import keep_newest

log = logging.getLogger(__name__)

LIMIT_MB = 1024
"""Beyond this size the older half of a file is removed."""
KEPT = 4
"""Files that stay: those of the models used last."""
WAIT_S = 5.0
"""Seconds to wait for another process that writes."""
PER_QUERY = 500
CHECKSUM_BYTES = 4
CREATE = "CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, value BLOB NOT NULL)"
INSERT = "INSERT OR REPLACE INTO kept VALUES (?, ?)"
REMOVE_OLDER_HALF = """
DELETE FROM kept WHERE rowid <= (SELECT (min(rowid) + max(rowid)) / 2 FROM kept)
"""

T = TypeVar("T")


def vector_folder() -> Path:
    """Returns the folder of all files of vectors; it need not exist."""
    return storage.cache_folder() / "vectors"


class VectorFile:
    """Values by key: vectors by a digest of their text, documents by one of their content.

    It may be used from several threads and processes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._can_read = True
        self._can_write = True

    def find(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Returns the values that are kept."""
        wanted = list(keys)

        def find(connection: sqlite3.Connection) -> dict[bytes, bytes]:
            found = dict[bytes, bytes]()
            for first in range(0, len(wanted), PER_QUERY):
                some = wanted[first : first + PER_QUERY]
                places = ", ".join("?" * len(some))
                query = f"SELECT key, value FROM kept WHERE key IN ({places})"
                for key, stored in connection.execute(query, some):
                    value = stored[:-CHECKSUM_BYTES]
                    if _checksum(key, value) != stored[-CHECKSUM_BYTES:]:
                        raise DamagedError("a checksum does not match")
                    found[key] = value
            return found

        if not (self._can_read and self.path.exists()):
            return {}
        return self._do(find) or {}

    def add(self, values: Mapping[bytes, bytes]) -> None:
        """Keeps values."""
        rows = [(key, value + _checksum(key, value)) for key, value in values.items()]

        def add(connection: sqlite3.Connection) -> None:
            with connection:
                connection.executemany(INSERT, rows)
                if self.path.stat().st_size > LIMIT_MB << 20:
                    connection.execute(REMOVE_OLDER_HALF)

        if self._can_write and rows:
            self._do(add)

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Returns what work with the database returns; ``None`` where it cannot be done."""
        with self._lock:
            for _ in range(2):
                try:
                    return work(self._opened())
                except (sqlite3.OperationalError, OSError) as error:
                    self._give_up(error)
                    return None
                except (sqlite3.DatabaseError, DamagedError, TypeError) as error:
                    log.warning("%s is damaged (%s): it is made again", self.path, error)
                    if self._connection is not None:
                        self._connection.close()
                        self._connection = None
                    with contextlib.suppress(OSError):
                        self.path.unlink()
        return None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            is_new = not self.path.exists()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                self.path, WAIT_S, isolation_level="IMMEDIATE", check_same_thread=False
            )
            if is_new:
                with contextlib.suppress(OSError):
                    keep_newest(self.path, "*.sqlite", KEPT)
            self._connection.execute(CREATE)
        return self._connection

    def _give_up(self, error: Exception) -> None:
        """Reads on, if that is possible, and writes no more."""
        if self._can_write:
            log.info("vectors are not kept: %s: %s", self.path, error)
        else:
            self._can_read = False
        self._can_write = False


def _checksum(key: bytes, value: bytes) -> bytes:
    return zlib.crc32(value, zlib.crc32(key)).to_bytes(CHECKSUM_BYTES, "big")
