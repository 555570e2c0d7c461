"""The shares of the input among workers, and the merging of the records that they write.

Each bundle of a pipeline is a file of TFRecords. A record begins with the number of its input file
and its line; the rest is the pickled element. An index of all records, 40 bytes each, is sorted.
"""

import pickle
import re
import struct
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nq.errors import DamagedError
from nq.formats.tfrecord import read_record_at, record_offsets

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
    index = array("q")
    for number, path in enumerate(paths):
        with path.open("rb") as file:
            for offset, length in record_offsets(path):
                file.seek(offset)
                index.extend((*_KEY.unpack(file.read(_KEY.size)), number, offset, length))
    rows = np.array(index, np.int64).reshape(-1, 5)
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    repeated = (rows[1:, :2] == rows[:-1, :2]).all(axis=1)
    for file_index, line, number, *_ in rows[1:][repeated].tolist():
        raise DamagedError(
            f"{paths[number]} has line {line} of input file {file_index} a second time"
        )
    for _, _, number, offset, length in map(np.ndarray.tolist, rows):
        with paths[number].open("rb") as file:
            yield pickle.loads(read_record_at(file, offset, length)[_KEY.size :])


def check_shards(names: Sequence[str]) -> None:
    """Checks that all files of a sink are there, by names such as ``answers-00000-of-00002``."""
    matches = [match for match in map(_SHARD.fullmatch, names) if match]
    numbers = {int(match[1]) for match in matches}
    totals = {int(match[2]) for match in matches}
    if len(totals) != 1 or numbers != set(range(*totals)):
        shown = ", ".join(sorted(names)) or "none"
        raise DamagedError(f"files of the workers are missing, found {shown}: run it again")
