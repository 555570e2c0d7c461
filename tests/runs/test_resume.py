"""Tests that a run that was killed continues to the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nq import storage
from nq.bundle import bundled_sample
from nq.config import Compute
from nq.runs.job import Job
from nq.runs.result import JOB, KEPT_SCORES, PREDICTIONS, UNFINISHED_SCORES
from nq.runs.run import run
from nq.runs.score_store import ScoreStore

ROOT = Path(__file__).parents[2]


def run_killed(code: str, *arguments: object) -> None:
    """Runs Python code, with its arguments as paths, in a process that must end by SIGKILL."""
    code = f"import pathlib, sys; *paths, last = map(pathlib.Path, sys.argv[1:]); {code}"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()


def make_job(model: Path, output: Path) -> Job:
    return Job([bundled_sample()], model, output=output, limit=6, compute=Compute(batch_size=1))


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
