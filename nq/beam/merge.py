"""The shares of the input among workers, and the merging of the records that they write.

Each bundle of a pipeline is a file of TFRecords. A record begins with the number of its input file
and its line; the rest is the pickled element. An index of all records, without their elements, is
sorted.
"""

import pickle
import re
import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from nq.errors import DamagedError
from nq.formats.tfrecord import FRAME_BYTES, raw_records
from nq.records import ExampleKey

_KEY = struct.Struct("<qq")
SHARES_PER_WORKER = 4
_SHARD = re.compile(r".*-(\d{5,})-of-(\d{5,})")

Share = tuple[int, int, int]


def shares(n_files: int, workers: int) -> list[Share]:
    """Returns the shares of the input: (file, i, n) is every n-th record of a file from the i-th.

    There are no more shares of a file than its workers need, because each passes over the records
    of the others.

    >>> shares(1, 2), shares(8, 2)[:3]
    ([(0, 0, 2), (0, 1, 2)], [(0, 0, 1), (1, 0, 1), (2, 0, 1)])
    >>> len(shares(50, 64)) / 50, shares(0, 2)
    (6.0, [])
    """
    n = min(workers, -(-SHARES_PER_WORKER * workers // max(1, n_files)))
    return [(file, i, n) for file in range(n_files) for i in range(n)]


def encode(element: Any) -> bytes:
    """Returns an element as bytes that begin with its place in the input, ``element.source``."""
    return _KEY.pack(*element.source.key) + pickle.dumps(element)


def merged(paths: Sequence[Path]) -> Iterator[Any]:
    """Yields the elements in the files of all workers, in the order of the input.

    Damage, and two records with the same place in the input, raise ``DamagedError``.
    """
    index = list[tuple[ExampleKey, Path, int]]()
    for path in paths:
        offset = 0
        for record in raw_records(path):
            file_index, line = _KEY.unpack_from(record)
            index.append(((file_index, line), path, offset))
            offset += len(record) + FRAME_BYTES
    index.sort()
    for (before, *_), (key, path, _) in pairwise(index):
        if key == before:
            raise DamagedError(f"{path} has line {key[1]} of input file {key[0]} a second time")
    for _, path, offset in index:
        record = next(raw_records(path, offset))
        yield pickle.loads(record[_KEY.size :])


def check_shards(names: Sequence[str]) -> None:
    """Checks that all files of a sink are there, by names such as ``answers-00000-of-00002``."""
    matches = [match for match in map(_SHARD.fullmatch, names) if match]
    numbers = {int(match[1]) for match in matches}
    totals = {int(match[2]) for match in matches}
    if len(totals) != 1 or numbers != set(range(*totals)):
        shown = ", ".join(sorted(names)) or "none"
        raise DamagedError(f"files of the workers are missing, found {shown}: run it again")
