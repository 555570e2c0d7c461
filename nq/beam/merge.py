"""The shares of the input among workers, and the merging of the records that they write.

Each bundle of a pipeline is a file of TFRecords. A record begins with the number of its input file
and its line; the rest is the pickled element. Within a file the records of one share of the input
are in order, so that a file is a few sorted *runs*, which are merged. A run is opened when its
first record is due; then as many are open at a time as workers shared an input file, and memory
does not grow with the input.
"""

from __future__ import annotations

import heapq
import pickle
import re
import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from nq.errors import DamagedError
from nq.formats.tfrecord import FRAME_BYTES, read_records
from nq.records import ExampleKey

_KEY = struct.Struct("<qq")
SHARES_PER_READER = 4
_SHARD = re.compile(r".*-(\d{5,})-of-(\d{5,})")

Share = tuple[int, int, int]


def shares(n_files: int, readers: int) -> list[Share]:
    """Returns (file, i, n) for each share of the input: every n-th record of a file from the i-th.

    There are no more shares of a file than its readers need, because each passes over the records
    of the others.

    >>> shares(1, 2), shares(8, 2)[:3]
    ([(0, 0, 2), (0, 1, 2)], [(0, 0, 1), (1, 0, 1), (2, 0, 1)])
    >>> len(shares(50, 64)) / 50, shares(0, 2)
    (6.0, [])
    """
    n = min(readers, -(-SHARES_PER_READER * readers // max(1, n_files)))
    return [(file, i, n) for file in range(n_files) for i in range(n)]


class SortedRun(NamedTuple):
    """Records of a file that are in order: ``length`` of them, from a byte ``offset`` on."""

    first: ExampleKey
    path: Path
    offset: int
    length: int


def encode(element: Any) -> bytes:
    """Returns the record of an element, whose place in the input is ``element.source``."""
    return _KEY.pack(element.source.file_index, element.source.line) + pickle.dumps(element)


def merged(paths: Sequence[Path]) -> Iterator[Any]:
    """Yields the elements in the files of all workers, in the order of the input.

    Damage, and two records with the same place in the input, raise ``DamagedError``.
    """
    runs = [run for path in paths for run in sorted_runs(path)]
    heap = [(run.first, number, b"") for number, run in enumerate(runs)]
    heapq.heapify(heap)
    opened: dict[int, Iterator[bytes]] = {}
    last: ExampleKey | None = None
    while heap:
        key, number, record = heap[0]
        if number not in opened:
            run = runs[number]
            opened[number] = islice(read_records(run.path, run.offset), run.length)
            record = next(opened[number])
        if key == last:
            raise DamagedError(
                f"{runs[number].path} has line {key[1]} of input file {key[0]} a second time"
            )
        yield pickle.loads(record[_KEY.size :])
        last = key
        following = next(opened[number], None)
        if following is None:
            heapq.heappop(heap)
            del opened[number]
        else:
            heapq.heapreplace(heap, (_KEY.unpack_from(following), number, following))


def sorted_runs(path: Path) -> list[SortedRun]:
    """Returns the runs of a file, as long as they can be; the file is read once."""
    runs, last, offset = list[SortedRun](), None, 0
    for record in read_records(path):
        key: ExampleKey = _KEY.unpack_from(record)
        if last is None or key <= last:
            runs.append(SortedRun(key, path, offset, 0))
        runs[-1] = runs[-1]._replace(length=runs[-1].length + 1)
        last, offset = key, offset + len(record) + FRAME_BYTES
    return runs


def check_shards(names: Sequence[str]) -> None:
    """Checks that all files of a sink are there, by names such as ``answers-00000-of-00002``."""
    matches = [match for match in map(_SHARD.fullmatch, names) if match]
    numbers = {int(match[1]) for match in matches}
    totals = {int(match[2]) for match in matches}
    if len(totals) != 1 or numbers != set(range(*totals)):
        shown = ", ".join(sorted(names)) or "none"
        raise DamagedError(
            f"files of the workers are missing, found {shown}: run the command again"
        )
