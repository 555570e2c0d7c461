"""Tests the scores on disk: reading them back, resuming, and moving them."""

import tempfile
from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.errors import DamagedError, Error
from nq.inference.scorer import Counters, Progress, Rows, Scorer, no_progress, score_examples
from nq.memo import REQUEST
from nq.records import READ, RESCORED, SCORE_COLUMNS, Columns, Example, ExampleKey, Windowed
from nq.runs.score_store import ScoreStore, StoringScorer
from tests.support.folders import of_earlier_version

K = 2
WIDTHS = {"cls_logit": 2, "type_logits": 5}
Row = tuple[int, int, int, int]
"""File, line, number of the window, windows of the example."""


def rows_of(examples: Sequence[tuple[ExampleKey, int]]) -> list[Row]:
    """Returns the rows of all windows of examples, given by key and number of windows."""
    return [(*key, window, n) for key, n in examples for window in range(n)]


def keys_of(rows: Sequence[Row]) -> Columns:
    """Returns the key columns of rows."""
    table = np.array(rows, np.int32).reshape(-1, 4)
    return {"example_keys": table[:, :2], "window_ids": table[:, 2:]}


def scores_of(rows: Sequence[Row], shift: float = 0.0) -> Columns:
    """Returns scores that differ between all windows and columns."""
    numbers = np.array(rows, np.int32).reshape(-1, 4)[:, :3] @ [10_000, 100, 1]
    return {
        name: (numbers[:, None] + np.arange(WIDTHS.get(name, K)) / 8 + i / 64 + shift).astype(
            np.int32 if name.endswith(("doc", "pos")) else np.float32
        )
        for i, name in enumerate(SCORE_COLUMNS)
    }


def write(store: ScoreStore, examples: Sequence[tuple[ExampleKey, int]]) -> None:
    rows = rows_of(examples)
    store.write(keys_of(rows), scores_of(rows))


def check(store: ScoreStore, key: ExampleKey, n: int, shift: float = 0.0) -> None:
    scores, expected = store[key], scores_of(rows_of([(key, n)]), shift)
    assert len(scores) == n
    for column in SCORE_COLUMNS:
        value = getattr(scores, column)
        assert value.dtype == expected[column].dtype
        np.testing.assert_array_equal(value, expected[column])


@st.composite
def parts(draw: st.DrawFn) -> list[list[tuple[ExampleKey, int]]]:
    """Draws examples in the order of the input, divided into parts."""
    keys = st.tuples(st.integers(0, 3), st.integers(1, 40))
    examples = sorted(draw(st.dictionaries(keys, st.integers(1, 9), max_size=12)).items())
    cuts = draw(st.lists(st.integers(0, len(examples)), max_size=6).map(sorted))
    edges = pairwise([0, *cuts, len(examples)])
    return [examples[a:b] for a, b in edges if a < b]


@given(parts())
def test_what_is_written_is_read_back(examples: list[list[tuple[ExampleKey, int]]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        store = ScoreStore(Path(name))
        for part in examples:
            write(store, part)
        counts = {key: n for part in examples for key, n in part}
        for opened in (store, ScoreStore(Path(name))):
            assert list(opened) == sorted(counts)
            for key, n in reversed(counts.items()):
                assert key in opened
                check(opened, key, n)
            absent = next(key for key in ((9, line) for line in range(50)) if key not in counts)
            assert absent not in opened
            with pytest.raises(Error, match="file 9, line 0"):
                opened[absent]


def test_pruned_windows_are_told_from_computed_ones(tmp_path: Path) -> None:
    rows = rows_of([((0, 1), 3), ((0, 2), 2)])
    store = ScoreStore(tmp_path)
    computed = np.array([True, False, True, False, False])
    store.write(keys_of(rows), {**scores_of(rows), READ: computed})
    write(store, [((0, 3), 2)])
    for opened in (store, ScoreStore(tmp_path)):
        assert opened.columns((0, 1))[READ].tolist() == [True, False, True]
        assert opened.columns((0, 2))[READ].tolist() == [False, False]
        assert READ not in opened.columns((0, 3))


def damage(path: Path, kind: str) -> None:
    """Cuts a file to half, empties it, or flips a bit in its middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    damaged = {"cut": data[: len(data) // 2], "empty": bytearray(), "flipped": data}
    path.write_bytes(damaged[kind])


@pytest.mark.parametrize("kind", ["cut", "empty", "flipped"])
def test_damaged_parts_are_removed_and_computed_again(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    parts = [[((0, 1), 2), ((0, 2), 1)], [((0, 3), 3)], [((1, 1), 2)]]
    for part in parts:
        write(ScoreStore(tmp_path, {}), part)
    expected = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    names = sorted(name for name in expected if name != "request.json")
    for name in names[:2]:
        damage(tmp_path / name, kind)
    with pytest.raises(DamagedError, match=names[0]):
        ScoreStore(tmp_path)
    store = ScoreStore(tmp_path, {})
    assert list(store) == [(1, 1)]
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"{tmp_path / names[0]} ") and "2 of 3" in message
    for part in parts[:2]:
        write(store, part)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == expected


def test_scores_of_an_earlier_version_are_computed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(ScoreStore(tmp_path, {"model": "a"}), [((0, 1), 1)])
    of_earlier_version(tmp_path / REQUEST)
    assert (0, 1) not in ScoreStore(tmp_path, {"model": "a"})
    (message,) = caplog.messages
    assert str(tmp_path / REQUEST) in message and "version" in message


def test_an_equal_request_keeps_the_parts_and_another_one_removes_them(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "unfinished"
    write(ScoreStore(folder, {"model": "a", "batch_size": 8}), [((0, 1), 1)])
    assert (0, 1) in ScoreStore(folder, {"batch_size": 8, "model": "a"})
    assert (0, 1) not in ScoreStore(folder, {"model": "b", "batch_size": 8})


class CountingScorer(Scorer):
    """A scorer that remembers the keys of the examples that it scores."""

    network: Any = None
    precision, device, batch_size, part_batches = "float32", "CPU", 4, 2

    def __init__(self) -> None:
        self.counters, self.keys = Counters(), list[ExampleKey]()

    def scores(
        self, rows: Rows, examples: Sequence[Example] = (), progress: Progress = no_progress
    ) -> Columns:
        table = np.concatenate([rows["example_keys"], rows["window_ids"]], axis=1).tolist()
        new = list(dict.fromkeys((file, line) for file, line, _, _ in table))
        assert len(new) == len(examples)
        self.keys += new
        progress(len(table))
        return {**scores_of(table), RESCORED: np.full(len(table), True)}


def score(scorer: StoringScorer, rows: Sequence[Row], progress: Progress) -> None:
    """Scores examples, and checks what the scorer returns."""
    pages = [
        Windowed(Example(line, "who", ["a"], [False], ()), keys_of(list(group)))
        for line, group in groupby(rows, lambda row: row[1])
    ]
    for one in score_examples(scorer, pages, progress):
        expected = scores_of([row for row in rows if row[1] == one.example.example_id])
        assert one.rescored
        for name in SCORE_COLUMNS:
            np.testing.assert_array_equal(getattr(one.scores, name), expected[name])


def test_a_storing_scorer_computes_each_example_once(tmp_path: Path) -> None:
    first, second = [((0, 1), 2), ((0, 2), 1)], [((0, 2), 1), ((0, 3), 3), ((0, 4), 2)]
    for part, new, stored in (
        (first, [(0, 1), (0, 2)], 0),
        (second, [(0, 3), (0, 4)], 1),
        (second, [], 6),
        (first, [], 3),
    ):
        inner, completed = CountingScorer(), list[int]()
        store = ScoreStore(tmp_path, {})
        scorer = StoringScorer(inner, store)
        score(scorer, rows_of(part), completed.append)
        assert (inner.keys, scorer.resumed_windows) == (new, stored)
        assert sum(completed) == sum(n for _, n in part)
