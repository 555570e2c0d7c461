"""The records that workers wrote, in the order of the input.

Each bundle of a pipeline is a file of TFRecords. A record begins with the number of its input file
and its line. Within a file the records of one share of the input are in order, so that a file is a
few sorted *runs*, which are merged. A run is opened when its first record is due; then as many are
open at a time as workers shared an input file, and memory does not grow with the input.
"""

from __future__ import annotations

import heapq
import re
import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from nq.errors import DamagedError
from nq.formats.tfrecord_file import FRAME_BYTES, read_records
from nq.records import ExampleKey, Source

_KEY = struct.Struct("<qq")
_SHARD = re.compile(r".*-(\d{5,})-of-(\d{5,})")


class SortedRun(NamedTuple):
    """Records of a file that are in order.

    Args:
        first: the key of the first one.
        path: of the file.
        offset: where the first one begins in the file, in bytes.
        length: how many they are.
    """

    first: ExampleKey
    path: Path
    offset: int
    length: int


def encode(source: Source, data: bytes) -> bytes:
    """Returns the record of an example."""
    return _KEY.pack(source.file_index, source.line) + data


def merged(paths: Sequence[Path]) -> Iterator[tuple[ExampleKey, bytes]]:
    """Yields file number, line and data of each record, in the order of the input.

    Args:
        paths: all files of all workers.

    Raises:
        DamagedError: a file is damaged, or two records have the same key.
    """
    runs = [run for path in paths for run in sorted_runs(path)]
    heap = [(run.first, number, b"") for number, run in enumerate(runs)]
    heapq.heapify(heap)
    opened: dict[int, Iterator[tuple[ExampleKey, bytes]]] = {}
    last: ExampleKey | None = None
    while heap:
        key, number, data = heap[0]
        if number not in opened:
            opened[number] = _read(runs[number])
            key, data = next(opened[number])
        if key == last:
            raise DamagedError(
                f"{runs[number].path} has line {key[1]} of input file {key[0]} a second time"
            )
        yield key, data
        last = key
        following = next(opened[number], None)
        if following is None:
            heapq.heappop(heap)
            del opened[number]
        else:
            heapq.heapreplace(heap, (following[0], number, following[1]))


def sorted_runs(path: Path) -> list[SortedRun]:
    """Returns the runs of a file; it is read once."""
    runs, last, offset = list[SortedRun](), None, 0
    for record in read_records(path):
        key: ExampleKey = _KEY.unpack_from(record)
        if last is None or key <= last:
            runs.append(SortedRun(key, path, offset, 0))
        runs[-1] = runs[-1]._replace(length=runs[-1].length + 1)
        last, offset = key, offset + len(record) + FRAME_BYTES
    return runs


def _read(run: SortedRun) -> Iterator[tuple[ExampleKey, bytes]]:
    for record in islice(read_records(run.path, run.offset), run.length):
        yield _KEY.unpack_from(record), record[_KEY.size :]


def check_shards(names: Sequence[str]) -> None:
    """Checks that all files of a sink are there, by the number of files in their names.

    Args:
        names: of the files, such as ``answers-00000-of-00002``.

    Raises:
        DamagedError: one is missing.
    """
    matches = [match for match in map(_SHARD.fullmatch, names) if match]
    numbers = {int(match[1]) for match in matches}
    totals = {int(match[2]) for match in matches}
    if len(totals) != 1 or numbers != set(range(*totals)):
        shown = ", ".join(sorted(names)) or "none"
        raise DamagedError(
            f"files of the workers are missing, found {shown}: run the command again"
        )
