"""Tests that windows are read by example, and that incomplete shards are errors in one line."""

from __future__ import annotations

import gc
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.errors import DamagedError, Error
from nq.formats.tfrecord import encode_records, frame, inference_shapes
from nq.records import Columns
from nq.runs.window_reader import WindowReader
from tests.inference.tiny_predictors import LENGTH, Item, item_rows, items

NOT_WHOLE = "missing, repeated or out of order"


def write_shards(folder: Path, shards: Sequence[Sequence[Item]]) -> list[Path]:
    """Writes the windows of the examples of each shard."""
    paths = [folder / f"windows-{number}.tfrecord" for number in range(len(shards))]
    for path, shard in zip(paths, shards, strict=True):
        path.write_bytes(b"".join(frame(r) for item in shard for r in records(item)))
    return paths


def records(item: Item) -> list[bytes]:
    source, features = item
    return list(encode_records(features, source))


def key(item: Item) -> tuple[int, int]:
    return item[0].file_index, item[0].line


def assert_rows(rows: Columns, expected: Columns) -> None:
    assert rows.keys() == inference_shapes(LENGTH).keys() == expected.keys()
    for name, column in rows.items():
        assert column.dtype == np.int32
        np.testing.assert_array_equal(column, expected[name], name)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2)), max_size=8),
    st.randoms(use_true_random=False),
)
def test_examples_are_read_in_any_order_from_any_shard(
    sizes: list[tuple[int, int]], draw: random.Random
) -> None:
    all_items = items(*(size for size, _ in sizes))
    shards: list[list[Item]] = [[], [], []]
    for item, (_, shard) in zip(all_items, sizes, strict=True):
        shards[shard].append(item)
    for shard_items in shards:
        draw.shuffle(shard_items)
    draw.shuffle(shards)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_shards(Path(folder), shards)
        with WindowReader(paths, LENGTH) as reader:
            for item in draw.sample(all_items, len(all_items)) * 2:
                assert_rows(reader.rows(key(item)), item_rows([item]))


def test_an_example_without_windows_is_an_error(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, [items(2, 3)])
    with WindowReader(paths, LENGTH) as reader, pytest.raises(Error, match="file 0, line 3"):
        reader.rows((0, 3))


@pytest.mark.parametrize(
    "order",
    [
        [(1, 1), (1, 2), (2, 0)],
        [(1, 0), (1, 1)],
        [(2, 0), (1, 0)],
        [(1, 1), (1, 0), (1, 2), (2, 0)],
        [(1, 0), (1, 1), (1, 2), (1, 2)],
        [(1, 0), (1, 1), (1, 2), (2, 0), (1, 0), (1, 1), (1, 2)],
    ],
)
def test_windows_that_are_missing_repeated_or_out_of_order_are_an_error(
    tmp_path: Path, order: list[tuple[int, int]]
) -> None:
    by_line = {item[0].line: records(item) for item in items(3, 1)}
    path = tmp_path / "windows-0.tfrecord"
    path.write_bytes(b"".join(frame(by_line[line][window]) for line, window in order))
    message = f"^windows of input file 0, line 1 are {NOT_WHOLE} in .*{path.name}$"
    with pytest.raises(DamagedError, match=message) as error:
        WindowReader([path], LENGTH)
    assert "\n" not in str(error.value)


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_files_are_closed_after_reading_and_after_an_error(tmp_path: Path) -> None:
    first, second = items(2, 3)
    paths = write_shards(tmp_path, [[first], [second], [first]])
    with WindowReader(paths[:2], LENGTH) as reader:
        reader.rows((0, 1))
    with pytest.raises(Error):
        WindowReader(paths, LENGTH)
    del reader
    gc.collect()


@pytest.mark.parametrize("change", ["cut off", "changed"])
def test_a_damaged_shard_is_an_error(tmp_path: Path, change: str) -> None:
    (path,) = write_shards(tmp_path, [items(2, 3)])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(path.read_bytes()[:-7] if change == "cut off" else data)
    with pytest.raises(DamagedError, match=r"windows-0.tfrecord is cut off or damaged") as error:
        WindowReader([path], LENGTH)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("first", "count", "lines"),
    [
        (100, 100, [1] * 4 + [2] * 2 + [3] * 6),
        (4, 100, [1] * 4),
        (5, 100, [1] * 4 + [2] * 2),
        (100, 6, [1, 1, 2, 3, 3, 3]),
        (100, 5, [1, 1, 3, 3]),
        (4, 1, [1]),
    ],
)
def test_some_rows_are_evenly_spaced_among_the_first_examples(
    tmp_path: Path, first: int, count: int, lines: list[int]
) -> None:
    paths = write_shards(tmp_path, [items(4, 2), items(4, 2, 6)[2:]])
    with WindowReader(paths, LENGTH) as reader:
        rows = reader.some_rows(first, count)
    assert rows["example_keys"][:, 1].tolist() == lines
    expected = item_rows(items(4, 2, 6))
    first_window = {1: 0, 2: 4, 3: 6}
    windows = rows["window_ids"][:, 0].tolist()
    numbers = [first_window[n] + window for n, window in zip(lines, windows, strict=True)]
    assert_rows(rows, {name: column[numbers] for name, column in expected.items()})
