"""Scores on disk: parts are whole, another request clears them, every example is gathered."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nq.errors import Error
from nq.records import SCORE_COLUMNS
from nq.runs.score_store import (
    AGAIN,
    PARTS_IN_MEMORY,
    Results,
    alone,
    claim,
    clear,
    move,
    shards,
    windows_done,
    write_part,
)

K = 2
WIDTHS = {"cls_logit": 2, "type_logits": 5}
SHARD = Path("windows-00000-of-00001.tfrecord")
Row = tuple[int, int, int, int]
"""File, line, window, windows in all."""


def part(rows: Sequence[Row]) -> dict[str, Any]:
    """Scores that tell which window they are of."""
    found = np.array(rows, np.int32).reshape(-1, 4)
    numbers = found[:, :3] @ [10_000, 100, 1]
    arrays: dict[str, Any] = {
        name: (numbers[:, None] + np.arange(WIDTHS.get(name, K)) / 8 + i / 64).astype(
            np.int32 if name.endswith(("doc", "pos")) else np.float32
        )
        for i, name in enumerate(SCORE_COLUMNS)
    }
    return {**arrays, "example_keys": found[:, :2], "window_ids": found[:, 2:]}


@st.composite
def scattered(draw: st.DrawFn) -> tuple[dict[tuple[int, int], int], list[list[list[Row]]]]:
    """Windows of some examples, in any order, cut into shards and parts; and how many each has."""
    keys = st.tuples(st.integers(0, 3), st.integers(1, 40))
    examples = draw(st.dictionaries(keys, st.integers(1, 9), max_size=8))
    rows = [(*key, w, n) for key, n in examples.items() for w in range(n)]
    rows = draw(st.permutations(rows))
    cuts = st.lists(st.integers(0, len(rows)), max_size=12).map(sorted)
    edges = [0, *draw(cuts), len(rows)]
    parts = [rows[a:b] for a, b in pairwise(edges) if a < b]
    shards: list[list[list[Row]]] = [[], [], []]
    for rows_of_part in parts:
        shards[draw(st.integers(0, 2))].append(rows_of_part)
    return examples, shards


@settings(deadline=None, max_examples=60)
@given(scattered())
def test_windows_scattered_over_shards_and_parts_are_gathered_in_order(
    found: tuple[dict[tuple[int, int], int], list[list[list[Row]]]],
) -> None:
    examples, shards = found
    with tempfile.TemporaryDirectory() as name:
        paths = tuple(Path(f"windows-{i}.tfrecord") for i in range(len(shards)))
        for path, parts in zip(paths, shards, strict=True):
            first = 0
            for rows in parts:
                write_part(Path(name), path, first, part(rows))
                first += len(rows)
        results = Results(Path(name), paths)
        for key, n in reversed(examples.items()):
            expected = part([(*key, window, n) for window in range(n)])
            gathered = results[key]
            assert len(gathered) == n
            for column in SCORE_COLUMNS:
                value = getattr(gathered, column)
                assert value.dtype == expected[column].dtype
                np.testing.assert_array_equal(value, expected[column])
        absent = next(key for key in ((9, line) for line in range(50)) if key not in examples)
        with pytest.raises(ValueError, match="0 of unknown windows"):
            results[absent]


def test_what_was_computed_again_counts(tmp_path: Path) -> None:
    first = [(0, 6, 0, 2), (0, 6, 1, 2), (1, 6, 0, 1), (0, 7, 0, 1)]
    write_part(tmp_path, SHARD, 0, part(first))
    again = part([(0, 6, 0, 2), (0, 6, 1, 2)])
    again["start_logit"] += 1
    write_part(tmp_path, AGAIN, 0, again)
    results = Results(tmp_path, (SHARD,))
    assert results.again == {(0, 6)} and set(results) == {(0, 6), (0, 7), (1, 6)}
    np.testing.assert_array_equal(results[0, 6].start_logit, again["start_logit"])
    np.testing.assert_array_equal(results[1, 6].start_logit, part(first)["start_logit"][2:3])
    assert shards(tmp_path) == (Path(SHARD.stem),)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "0 of unknown windows"),
        ([(0, 7, 0, 3), (0, 7, 2, 3)], "2 of 3 windows"),
        ([(0, 7, 0, 3), (0, 7, 1, 3)], "2 of 3 windows"),
        ([(0, 7, 1, 2)], "1 of 2 windows"),
        ([(0, 7, 0, 2), (0, 7, 1, 2), (0, 7, 1, 2)], "3 of 2 windows"),
    ],
)
def test_missing_and_repeated_windows_are_an_error_that_says_what_to_do(
    tmp_path: Path, rows: list[Row], problem: str
) -> None:
    write_part(tmp_path, SHARD, 0, part([(0, 6, 0, 1), *rows, (0, 8, 0, 1)]))
    results = Results(tmp_path, (SHARD,))
    assert len(results[0, 6]) == len(results[0, 8]) == 1
    with pytest.raises(ValueError, match=f"input file 0, line 7 .*{problem}.* run again"):
        results[0, 7]


def test_few_parts_are_held_in_memory(tmp_path: Path) -> None:
    n_parts = PARTS_IN_MEMORY * 3
    for i in range(n_parts):
        write_part(tmp_path, SHARD, i, part([(0, i, 0, 1)]))
    results = Results(tmp_path, (SHARD,))
    for i in (*range(n_parts), *range(n_parts)):
        assert results[0, i].start_pos[0, 0] == part([(0, i, 0, 1)])["start_pos"][0, 0]
    assert results._load.cache_info().currsize == PARTS_IN_MEMORY


def test_a_part_has_no_other_bytes_than_its_scores(tmp_path: Path) -> None:
    paths: list[Path] = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_part(tmp_path / name, SHARD, 5, part([(0, 1, 0, 1)]))
        paths += (tmp_path / name).iterdir()
    assert paths[0].name == paths[1].name
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_windows_done_counts_up_to_the_end_of_the_last_part(tmp_path: Path) -> None:
    other = Path("windows-00000-of-00001-1.tfrecord")
    assert windows_done(tmp_path, SHARD) == 0
    for first, n in ((0, 3), (3, 3), (6, 1)):
        write_part(tmp_path, SHARD, first, part([(0, 1, first + i, 7) for i in range(n)]))
        assert windows_done(tmp_path, SHARD) == first + n
    assert windows_done(tmp_path, other) == 0
    write_part(tmp_path, other, 0, part([(0, 2, i, 11) for i in range(11)]))
    assert (windows_done(tmp_path, SHARD), windows_done(tmp_path, other)) == (7, 11)


def test_an_unfinished_part_does_not_count(tmp_path: Path) -> None:
    write_part(tmp_path, SHARD, 0, part([(0, 1, 0, 2)]))
    (tmp_path / f"{SHARD.stem}-{1:012d}.tmp").write_bytes(b"PK\x03\x04 cut")
    assert windows_done(tmp_path, SHARD) == 1
    write_part(tmp_path, SHARD, 1, part([(0, 1, 1, 2)]))
    assert len(Results(tmp_path, (SHARD,))[0, 1]) == 2
    assert not list(tmp_path.glob("*.tmp"))


def test_an_equal_request_keeps_the_parts_and_another_one_clears_them(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "results"
    claim(folder, {"model": "a", "batch_size": 8})
    write_part(folder, SHARD, 0, part([(0, 1, 0, 1)]))
    claim(folder, {"batch_size": 8, "model": "a"})
    assert windows_done(folder, SHARD) == 1
    claim(folder, {"model": "b", "batch_size": 8})
    assert windows_done(folder, SHARD) == 0
    write_part(folder, SHARD, 0, part([(0, 1, 0, 1)]))
    (folder / "request.json").write_text('{"model": "b"', encoding="utf-8")
    claim(folder, {"model": "b", "batch_size": 8})
    assert windows_done(folder, SHARD) == 0


def test_claiming_removes_parts_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    claim(tmp_path, {"model": "a"})
    write_part(tmp_path, SHARD, 0, part([(0, 1, 0, 1)]))
    (tmp_path / "half.tmp").touch()
    claim(tmp_path, {"model": "b"})
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "request.json"}


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    with alone(tmp_path / "run"), alone(tmp_path / "other"):
        with pytest.raises(Error, match="another run writes"), alone(tmp_path / "run"):
            pass
        (tmp_path / "other" / "kept").touch()
    assert [p.name for p in tmp_path.rglob("*")] == ["other", "kept"]
    with pytest.raises(FileNotFoundError, match="of the block"), alone(tmp_path / "run"):
        raise FileNotFoundError("of the block")
    with alone(tmp_path / "run"):
        pass


def test_of_many_runs_one_at_a_time_has_the_folder(tmp_path: Path) -> None:
    inside, most, refused = list[int](), list[int](), list[int]()

    def run(number: int) -> None:
        for _ in range(200):
            try:
                with alone(tmp_path / "run"):
                    inside.append(number)
                    most.append(len(inside))
                    inside.pop()
            except Error:
                refused.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1 and len(most) + len(refused) == 800 and not any(tmp_path.iterdir())


def test_results_move_with_all_they_need(tmp_path: Path) -> None:
    results, to = tmp_path / "results", tmp_path / "scores"
    claim(results, {"model": "small"})
    write_part(results, SHARD, 0, part([(0, 1, 0, 1)]))
    (results / "left.tmp").touch()
    before = Results(results, (SHARD,))[0, 1]
    move(results, to)
    clear(results)
    assert not results.exists()
    assert shards(to) == (Path(SHARD.stem),)
    assert np.array_equal(Results(to, shards(to))[0, 1].start_logit, before.start_logit)
    clear(to)
    assert not to.exists()
