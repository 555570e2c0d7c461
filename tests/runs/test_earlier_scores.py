"""Tests that kept scores of earlier versions are read: ``windows-….npz`` and ``again-….npz``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nq.errors import Error
from nq.records import READ, SCORE_COLUMNS, Columns
from nq.runs.score_store import ScoreStore

K = 2
WIDTHS = {"cls_logit": 2, "type_logits": 5}
FIRST, SECOND, AGAIN = "windows-00000-of-00002", "windows-00001-of-00002", "again"
Row = tuple[int, int, int, int]
"""File, line, number of the window, and the example's number of windows."""


def windows_of(file: int, line: int, n_windows: int) -> list[Row]:
    return [(file, line, window, n_windows) for window in range(n_windows)]


def part(rows: Sequence[Row], shift: float = 0.0) -> Columns:
    """Returns scores that differ between windows, columns and positions, with their keys."""
    keys = np.array(rows, np.int32).reshape(-1, 4)
    numbers = keys[:, :3] @ [10_000, 100, 1]
    arrays: Columns = {
        name: (numbers[:, None] + np.arange(WIDTHS.get(name, K)) / 8 + i / 64 + shift).astype(
            np.int32 if name.endswith(("doc", "pos")) else np.float32
        )
        for i, name in enumerate(SCORE_COLUMNS)
    }
    return {**arrays, "example_keys": keys[:, :2], "window_ids": keys[:, 2:]}


def write_earlier(folder: Path, shard: str, first: int, arrays: Columns) -> None:
    """Writes a part as earlier versions did, named by its shard and its first window."""
    with open(folder / f"{shard}-{first:012d}.npz", "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The scores of seven examples in two shards, two of which were computed again."""
    rows = [*windows_of(0, 2, 3), *windows_of(0, 1, 2), *windows_of(0, 5, 1)]
    write_earlier(tmp_path, FIRST, 0, part(rows[:5]))
    write_earlier(tmp_path, FIRST, 5, part(rows[5:]))
    rows = [*windows_of(1, 1, 4), *windows_of(0, 3, 1), *windows_of(1, 2, 2), *windows_of(0, 4, 1)]
    write_earlier(tmp_path, SECOND, 0, {**part(rows), READ: np.arange(8) % 2 == 0})
    write_earlier(tmp_path, AGAIN, 0, part(windows_of(0, 1, 2), shift=0.5))
    write_earlier(tmp_path, AGAIN, 2, part(windows_of(1, 1, 4), shift=0.5))
    (tmp_path / "request.json").write_text('{"profile": "mixed+refine+recheck"}', encoding="utf-8")
    return tmp_path


SIZES = {(0, 1): 2, (0, 2): 3, (0, 3): 1, (0, 4): 1, (0, 5): 1, (1, 1): 4, (1, 2): 2}


def test_the_scores_of_every_example_are_read_in_order_of_the_windows(folder: Path) -> None:
    store = ScoreStore(folder)
    assert list(store) == list(SIZES)
    for key, n_windows in SIZES.items():
        rescored = key in {(0, 1), (1, 1)}
        expected = part(windows_of(*key, n_windows), shift=0.5 if rescored else 0.0)
        scores = store[key]
        for name in SCORE_COLUMNS:
            column = getattr(scores, name)
            assert column.dtype == expected[name].dtype
            np.testing.assert_array_equal(column, expected[name])


def test_windows_that_were_not_read_are_known(folder: Path) -> None:
    store = ScoreStore(folder)
    computed = {key: store.computed(key).tolist() for key in store}
    assert computed[1, 2] == [False, True]  # windows 5 and 6 of the second shard
    assert computed[0, 3] == [True] and computed[0, 4] == [False]
    assert computed[1, 1] == [True] * 4, "all windows of a rescored example are computed"
    assert computed[0, 2] == [True] * 3, "without the column all windows are computed"


def test_incomplete_examples_are_an_error_that_names_them(folder: Path) -> None:
    (folder / f"{AGAIN}-{0:012d}.npz").unlink()
    (folder / f"{FIRST}-{5:012d}.npz").unlink()
    write_earlier(folder, SECOND, 8, part(windows_of(0, 6, 3)[1:]))
    store = ScoreStore(folder)
    assert list(store) == [key for key in SIZES if key != (0, 5)]
    np.testing.assert_array_equal(store[0, 1].start_logit, part(windows_of(0, 1, 2))["start_logit"])
    for line in (5, 6):
        with pytest.raises(Error, match=f"scores of input file 0, line {line} are missing or not"):
            store[0, line]


def test_a_new_run_with_another_request_removes_them(folder: Path) -> None:
    store = ScoreStore.open(folder, {"profile": "mixed+prune+rescore"})
    assert list(store) == []
    assert [path.name for path in folder.iterdir()] == ["request.json"]
