"""Reads prepared windows in the order of the input, whatever shard they were written to."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nq.errors import DamagedError, Error
from nq.formats.tfrecord import (
    KEYS,
    decode_records,
    inference_shapes,
    read_record_at,
    record_offsets,
)
from nq.records import Columns, ExampleKey

INDEX_BATCH = 1024


class WindowReader:
    """The windows of a prepared chunk by example.

    Args:
        shards: TFRecord files, in which the windows of each example are consecutive.
        length: pieces in a window.
    """

    def __init__(self, shards: Sequence[Path], length: int) -> None:
        self._shapes = inference_shapes(length)
        self._offsets = [record_offsets(path) for path in shards]
        self._records: dict[ExampleKey, tuple[int, range]] = {}
        with contextlib.ExitStack() as stack:
            self._files = [stack.enter_context(path.open("rb")) for path in shards]
            for shard in range(len(shards)):
                self._index(shard)
            self._open_files = stack.pop_all()

    def __enter__(self) -> WindowReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._open_files.close()

    def __contains__(self, key: ExampleKey) -> bool:
        return key in self._records

    def rows(self, key: ExampleKey) -> Columns:
        """Returns all windows of one example, each column ``[W, …]``."""
        if key not in self._records:
            raise Error(
                f"there are no windows of input file {key[0]}, line {key[1]}: the file has changed "
                "since its windows were prepared; run the command again when it is complete"
            )
        shard, numbers = self._records[key]
        return decode_records(self._read(shard, numbers), self._shapes)

    def some_rows(self, first: int, count: int) -> Columns:
        """Returns about ``count`` windows, evenly spaced in the examples of the ``first`` ones."""
        chosen: list[tuple[int, int]] = []
        for shard, numbers in self._records.values():
            if len(chosen) >= first:
                break
            chosen += [(shard, number) for number in numbers]
        if not chosen:
            raise Error("there are no windows")
        chosen = chosen[:: -(-len(chosen) // count)]
        return decode_records(
            [record for shard, n in chosen for record in self._read(shard, range(n, n + 1))],
            self._shapes,
        )

    def _read(self, shard: int, numbers: range) -> list[bytes]:
        file, offsets = self._files[shard], self._offsets[shard]
        return [read_record_at(file, *offsets[number]) for number in numbers]

    def _index(self, shard: int) -> None:
        """Finds the records of each example, by the keys in the records."""
        shapes = {name: [width] for name, width in KEYS.items()}
        total = len(self._offsets[shard])
        key, numbers = (0, 0), range(0)
        for start in range(0, total, INDEX_BATCH):
            batch = range(start, min(start + INDEX_BATCH, total))
            columns = decode_records(self._read(shard, batch), shapes)
            rows = np.concatenate([columns[name] for name in KEYS], axis=1).tolist()
            for number, (file, line, window, n_windows) in zip(batch, rows, strict=True):
                if number == numbers.stop:
                    key, numbers = (file, line), range(number, number + n_windows)
                    if key in self._records:
                        raise self._not_whole(shard, key)
                    self._records[key] = shard, numbers
                if (file, line) != key or window != number - numbers.start:
                    raise self._not_whole(shard, key)
        if numbers.stop != total:
            raise self._not_whole(shard, key)

    def _not_whole(self, shard: int, key: ExampleKey) -> DamagedError:
        return DamagedError(
            f"windows of input file {key[0]}, line {key[1]} are missing, repeated or out of order "
            f"in {self._files[shard].name}"
        )
