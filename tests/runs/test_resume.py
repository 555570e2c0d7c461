"""Tests that a run that was killed continues to the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nq import storage
from nq.bundle import bundled_sample
from nq.inference.predictor import Predictor
from nq.inference.scorer import Progress, no_progress, score_examples
from nq.records import SCORE_COLUMNS, Example
from nq.runs.job import Job
from nq.runs.result import JOB, KEPT_SCORES, PREDICTIONS, UNFINISHED_SCORES
from nq.runs.run import run
from nq.runs.score_store import ScoreStore, StoringScorer
from nq.runs.window_reader import WindowReader
from tests import tiny_models
from tests.inference.tiny_predictors import LENGTH, PART, Item, item_rows, items, new_predictor

ROOT = Path(__file__).parents[2]
REQUEST = {"windows": "some", "k": 5}
SIZES, OTHER_SIZES = (PART, PART, 8, PART), (5, 1)
"""Windows of the examples in two shards; they are scored in four parts."""
N_PARTS, N_WINDOWS = 4, 3 * PART + 14


def score(
    predictor: Predictor,
    shards: Sequence[Path],
    examples: Sequence[Item],
    folder: Path,
    progress: Progress = no_progress,
    request: Mapping[str, Any] = REQUEST,
) -> StoringScorer:
    """Scores the windows of examples in shards, as a run does; returns the scorer."""
    scorer = StoringScorer(predictor, ScoreStore.open(folder, request))
    with WindowReader(shards, LENGTH) as reader:
        windows = (
            (
                Example(source.line, "who", ["w"], [False], ()),
                reader.rows((source.file_index, source.line)),
            )
            for source, _ in examples
        )
        scored = list(score_examples(scorer, windows, progress))
    assert [len(scores) for _, scores in scored] == [len(features) for _, features in examples]
    return scorer


def write(folder: Path, examples: Sequence[Item], name: str = "windows-0.tfrecord") -> Path:
    return tiny_models.write_shard(folder / name, examples)


def parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.npz"))}


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return new_predictor()


# --- parts


@pytest.mark.parametrize(
    ("sizes", "first_lines"),
    [
        ((), []),
        ((1,), [1]),
        ((PART - 1,), [1]),
        ((PART, 1), [1, 2]),
        ((PART + 1,), [1]),
        ((5, PART, 2, PART - 2, PART, 1), [1, 3, 5, 6]),
    ],
)
def test_parts_have_whole_examples_and_at_least_so_many_batches(
    tmp_path: Path, predictor: Predictor, sizes: Sequence[int], first_lines: Sequence[int]
) -> None:
    examples = items(*sizes)
    completed: list[int] = []
    shards = [write(tmp_path, examples)]
    scorer = score(predictor, shards, examples, tmp_path / "scores", completed.append)
    names = [f"part-000000-{line:09d}.npz" for line in first_lines]
    assert list(parts(tmp_path / "scores")) == names
    assert (scorer.stored_windows, sum(completed)) == (0, sum(sizes))
    store = ScoreStore(tmp_path / "scores")
    assert list(store) == [(0, line) for line in range(1, len(sizes) + 1)]
    if examples:
        expected = predictor.scores(item_rows(examples))
        for name in SCORE_COLUMNS:
            actual = np.concatenate([getattr(store[key], name) for key in store])
            np.testing.assert_allclose(actual, expected[name], atol=1e-6)


# --- resuming


@pytest.fixture(scope="module")
def examples() -> list[Item]:
    return [*items(*SIZES), *items(*OTHER_SIZES, file=1)]


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, predictor: Predictor, examples: list[Item]
) -> tuple[list[Path], Path]:
    """Two shards and the scores of a run that was not interrupted."""
    folder = tmp_path_factory.mktemp("undisturbed")
    n = len(SIZES)
    shards = [write(folder, examples[:n]), write(folder, examples[n:], "windows-1.tfrecord")]
    score(predictor, shards, examples, folder / "scores")
    assert len(parts(folder / "scores")) == N_PARTS
    return shards, folder / "scores"


@pytest.mark.parametrize("kept", [[], [0], [0, 1], [1, 3], [0, 2, 3], [0, 1, 2, 3]], ids=str)
def test_missing_parts_are_computed_again_to_the_same_bytes(
    tmp_path: Path,
    predictor: Predictor,
    examples: list[Item],
    undisturbed: tuple[list[Path], Path],
    kept: list[int],
) -> None:
    shards, scores = undisturbed
    expected = parts(scores)
    (tmp_path / "request.json").write_bytes((scores / "request.json").read_bytes())
    for name in [list(expected)[number] for number in kept]:
        (tmp_path / name).write_bytes(expected[name])
    before = predictor.counters.computed_windows
    completed: list[int] = []
    scorer = score(predictor, shards, examples, tmp_path, completed.append)
    assert parts(tmp_path) == expected
    sizes = [PART, PART, 8 + PART, 6]
    assert scorer.stored_windows == sum(sizes[number] for number in kept)
    computed = predictor.counters.computed_windows - before
    assert computed + scorer.stored_windows == sum(completed) == N_WINDOWS


def score_until_killed(shards: list[Path], folder: Path) -> None:
    """Scores until SIGKILL, in the middle of the second part; runs in a process of its own."""
    remaining = PART + PART // 2

    def kill(windows: int) -> None:
        nonlocal remaining
        remaining -= windows
        if remaining <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    examples = [*items(*SIZES), *items(*OTHER_SIZES, file=1)]
    score(new_predictor(), shards, examples, folder, kill)


def run_killed(code: str, *arguments: object) -> None:
    """Runs Python code, with its arguments as paths, in a process that must end by SIGKILL."""
    code = f"import pathlib, sys; *paths, last = map(pathlib.Path, sys.argv[1:]); {code}"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()


@pytest.mark.slow
def test_scoring_that_was_killed_continues_to_the_same_bytes(
    tmp_path: Path,
    predictor: Predictor,
    examples: list[Item],
    undisturbed: tuple[list[Path], Path],
) -> None:
    shards, scores = undisturbed
    code = "from tests.runs.test_resume import score_until_killed; score_until_killed(paths, last)"
    run_killed(code, *shards, tmp_path)
    assert list(parts(tmp_path)) == ["part-000000-000000001.npz"]
    scorer = score(predictor, shards, examples, tmp_path)
    assert scorer.stored_windows == PART
    assert parts(tmp_path) == parts(scores)


def test_scores_of_another_request_are_computed_again(tmp_path: Path, predictor: Predictor) -> None:
    examples = items(6)
    shards, folder = [write(tmp_path, examples)], tmp_path / "scores"
    score(predictor, shards, examples, folder)
    equal = score(predictor, shards, examples, folder)
    other = score(predictor, shards, examples, folder, request={**REQUEST, "k": 7})
    assert (equal.stored_windows, other.stored_windows) == (6, 0)


# --- whole runs


def make_job(model: Path, output: Path) -> Job:
    return Job([bundled_sample()], model, batch_size=1, output=output, limit=6)


def run_until_killed(model: Path, output: Path) -> None:
    """Answers until SIGKILL, after two thirds of the windows; runs in a process of its own."""
    completed = 0

    def kill(windows: int, total: int) -> None:
        nonlocal completed
        completed += windows
        if completed > total * 2 // 3:
            os.kill(os.getpid(), signal.SIGKILL)

    run(make_job(model, output), progress=kill)


@pytest.mark.slow
def test_a_run_that_was_killed_continues_to_the_same_predictions(
    tiny_model: Path, tmp_path: Path
) -> None:
    undisturbed = run(make_job(tiny_model, tmp_path / "undisturbed"))
    code = "from tests.runs.test_resume import run_until_killed; run_until_killed(*paths, last)"
    run_killed(code, tiny_model, tmp_path / "killed")
    assert not (tmp_path / "killed" / PREDICTIONS).exists()
    result = run(make_job(tiny_model, tmp_path / "killed"))
    assert 0 < result.resumed_windows < result.windows == undisturbed.windows
    expected = (undisturbed.folder / PREDICTIONS).read_bytes()
    assert (result.folder / PREDICTIONS).read_bytes() == expected
    assert sorted(path.name for path in result.folder.iterdir()) == sorted(
        path.name for path in undisturbed.folder.iterdir()
    )


def run_until_marked(moment: str, model: Path, output: Path) -> None:
    """Answers until SIGKILL right before or after the run is marked as finished."""
    write = storage.write_json

    def kill(path: Path, values: Mapping[str, Any]) -> None:
        if path.name == JOB and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        write(path, values)
        if path.name == JOB:
            os.kill(os.getpid(), signal.SIGKILL)

    storage.write_json = kill
    run(replace(make_job(model, output), keep_scores=True))


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_at_the_end_of_a_run_loses_no_scores(
    tiny_model: Path, tmp_path: Path, moment: str
) -> None:
    code = f"from tests.runs.test_resume import run_until_marked as r; r({moment!r}, *paths, last)"
    run_killed(code, tiny_model, tmp_path / "killed")
    killed = tmp_path / "killed"
    assert (killed / JOB).exists() == (moment == "after")
    predictions = (killed / PREDICTIONS).read_bytes()
    result = run(replace(make_job(tiny_model, killed), keep_scores=True))
    assert result.resumed_windows == result.windows > 0
    assert (killed / PREDICTIONS).read_bytes() == predictions
    assert not (killed / UNFINISHED_SCORES).exists()
    assert len(list(ScoreStore(killed / KEPT_SCORES))) == result.examples
