"""The TFRecord files of windows, whose names and content depend on the windows alone."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import IO, Self

SHARD_BYTES = 1 << 30
"""Bytes after which a shard ends, with the example that reaches them."""


class ShardWriter:
    """Writes the windows of examples, in order, to as many shards as they need.

    Use it as a context manager: the names, ``windows-00000-of-00002.tfrecord`` and so on, are given
    when the number of shards is known. There is always one shard.

    Args:
        folder: of the shards.
        first_file: number of the first input file, which distinguishes the shards of chunks.
        max_bytes: bytes after which a shard ends.
    """

    def __init__(self, folder: Path, first_file: int = 0, max_bytes: int = SHARD_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._prefix = f"windows-{first_file}" if first_file else "windows"
        self._shards = 0
        self._open()

    def _open(self) -> None:
        self._file: IO[bytes] = self._path(self._shards, 0).open("wb")
        self._shards += 1

    def _path(self, number: int, total: int) -> Path:
        return self._folder / f"{self._prefix}-{number:05d}-of-{total:05d}.tfrecord"

    def write(self, records: bytes) -> None:
        """Writes the framed records of one example, which are never in two shards."""
        if self._file.tell() >= self._max_bytes:
            self._file.close()
            self._open()
        self._file.write(records)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()
        if error is None:
            for number in range(self._shards):
                self._path(number, 0).rename(self._path(number, self._shards))
