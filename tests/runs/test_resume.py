"""Tests runs that are killed at their end, and has what kills runs of other tests."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nq import storage
from nq.bundle import bundled_sample
from nq.evaluation.answer_files import PREDICTIONS
from nq.runs.config import Compute
from nq.runs.folder import JOB, KEPT_SCORES
from nq.runs.job import Job
from nq.runs.run import run
from nq.runs.score_store import ScoreStore
from nq.runs.scoring import RunProgress
from tests.support.child_processes import python


def run_killed(module: str, function: str, *paths: Path) -> None:
    """Calls a function with paths in a process, which must end by SIGKILL."""
    code = f"import pathlib, sys; from {module} import {function}; "
    code += f"{function}(*map(pathlib.Path, sys.argv[1:]))"
    killed = python("-c", code, *paths)
    assert killed.returncode == -signal.SIGKILL, killed.stderr


def until_killed(before: Callable[[], None] = lambda: None) -> RunProgress:
    """Returns a progress that kills the process after two thirds of the windows."""
    completed = 0

    def kill(windows: int, total: int) -> None:
        nonlocal completed
        completed += windows
        if completed > total * 2 // 3:
            before()
            os.kill(os.getpid(), signal.SIGKILL)

    return kill


def make_job(model: Path, output: Path) -> Job:
    files, compute = [bundled_sample()], Compute(batch_size=1)
    return Job(files, model, "openvino", output=output, limit=6, compute=compute)


def run_until_killed(model: Path, output: Path) -> None:
    """Answers until SIGKILL; runs in a process of its own."""
    run(make_job(model, output), progress=until_killed())


def run_until_marked(model: Path, output: Path) -> None:
    """Answers until SIGKILL right before or after the run is marked as finished."""
    write = storage.write_json

    def kill(path: Path, values: Mapping[str, Any]) -> None:
        if path.name == JOB and output.name == "before":
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
    killed = tmp_path / moment
    run_killed("tests.runs.test_resume", "run_until_marked", tiny_model, killed)
    assert (killed / JOB).exists() == (moment == "after")
    predictions = (killed / PREDICTIONS).read_bytes()
    result = run(replace(make_job(tiny_model, killed), keep_scores=True))
    assert result.totals.resumed_windows == result.totals.windows > 0
    assert (killed / PREDICTIONS).read_bytes() == predictions
    assert not (killed / storage.WORK).exists()
    assert len(list(ScoreStore(killed / KEPT_SCORES))) == result.examples
