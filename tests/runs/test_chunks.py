"""Tests runs over several large files, whose windows are prepared chunk by chunk."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nq.bundle import bundled_sample
from nq.runs.config import Compute
from nq.runs.job import Job
from nq.runs.result import DEAD_LETTERS, JOB, PREDICTIONS, Result
from nq.runs.run import run

FILES = 3


@pytest.fixture
def job(tiny_model: Path, tmp_path: Path) -> Job:
    lines = bundled_sample().read_bytes().splitlines(keepends=True)
    files = []
    for i in range(FILES):
        files.append(tmp_path / f"{i}.jsonl")
        bad = f"bad {i}\n".encode()
        files[-1].write_bytes(b"".join([*lines[2 * i : 2 * i + 2], bad]))
    return Job(
        files, tiny_model, "baseline", output=tmp_path / "whole", compute=Compute(batch_size=8)
    )


def outputs(result: Result) -> tuple[Any, str, Any]:
    """Returns the predictions, the dead letters and the digests of the inputs of a run."""
    description = json.loads((result.folder / JOB).read_text())
    return (
        json.loads((result.folder / PREDICTIONS).read_text()),
        (result.folder / DEAD_LETTERS).read_text(),
        description["request"]["inputs"],
    )


@pytest.mark.slow
def test_chunks_give_the_predictions_of_one_request(job: Job, tmp_path: Path) -> None:
    assert len(job.requests()) == 1
    whole = run(job)
    cut = replace(job, output=tmp_path / "cut", compute=replace(job.compute, chunk_bytes=1))
    assert [request.first_file for request in cut.requests()] == [*range(FILES)]
    calls: list[tuple[int, int]] = []
    result = run(cut, progress=lambda windows, total: calls.append((windows, total)))
    assert outputs(result) == outputs(whole)
    assert (result.examples, result.windows) == (2 * FILES, whole.windows)
    assert result.dead_letters == FILES
    assert sum(windows for windows, _ in calls) == whole.windows == calls[-1][1]
    assert len(list(result.folder.glob("windows-*/COMPLETED"))) == FILES


@pytest.mark.slow
def test_windows_scored_before_an_interruption_are_kept(job: Job, tmp_path: Path) -> None:
    whole = outputs(run(replace(job, output=tmp_path / "other")))
    job = replace(job, compute=replace(job.compute, chunk_bytes=1))
    totals: set[int] = set()

    def interrupt(windows: int, total: int) -> None:
        totals.add(total)
        if len(totals) == 2:  # in the second chunk
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(job, progress=interrupt)
    resumed = run(job)
    assert resumed.resumed_windows > 0
    assert outputs(resumed) == whole
