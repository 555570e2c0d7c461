"""Several large files: the model reads the first windows while the others are made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nq.bundle import bundled_sample
from nq.inference.profile import Profile
from nq.model.checkpoint import load_settings
from nq.preprocess import store
from nq.runs.job import DEAD_LETTERS, JOB, PREDICTIONS, Job, Report
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
    settings = load_settings(tiny_model)
    return Job(
        tuple(map(str, files)),
        tiny_model,
        Profile.parse("baseline"),
        settings.windows,
        settings.decision,
        8,
        tmp_path / "whole",
    )


def left(report: Report) -> tuple[object, object, object]:
    """Predictions, dead letters and inputs."""
    asked = json.loads((report.output / JOB).read_text())
    return (
        json.loads((report.output / PREDICTIONS).read_text()),
        (report.output / DEAD_LETTERS).read_text(),
        asked["request"]["inputs"],
    )


@pytest.mark.parametrize("profile", ["baseline", "refine"])
def test_portions_find_what_one_request_finds(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    job = replace(job, profile=Profile.parse(profile))
    assert len(job.requests) == 1
    whole = run(job)
    monkeypatch.setattr(store, "PORTION_BYTES", 1)
    cut = replace(job, output=tmp_path / "cut")
    assert [request.first_file for request in cut.requests] == [*range(FILES)]
    told: list[tuple[int, int]] = []
    found = run(cut, on_windows=lambda done, total: told.append((done, total)))
    assert left(found) == left(whole)
    assert (found.examples, found.windows, found.dead_letters) == (2 * FILES, whole.windows, FILES)
    assert sum(done for done, _ in told) == whole.windows == told[-1][1]
    assert len(list(found.output.glob("windows-*/COMPLETED"))) == FILES


def test_a_limit_leaves_a_request_whole(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PORTION_BYTES", 1)
    limited = replace(job, limit=3)
    assert len(limited.requests) == 1
    assert run(limited).examples == 2  # the third record is bad


def test_small_files_share_a_portion(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [Path(path).stat().st_size for path in job.files]
    monkeypatch.setattr(store, "PORTION_BYTES", sizes[0] + 1)
    assert [request.files for request in job.requests] == [job.files[:2], job.files[2:]]


def test_what_was_read_before_an_interruption_stays(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = left(run(replace(job, output=Path(job.files[0]).parent / "other")))
    monkeypatch.setattr(store, "PORTION_BYTES", 1)
    totals: set[int] = set()

    def interrupt(done: int, total: int) -> None:
        totals.add(total)
        if len(totals) == 2:  # in the second portion
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(job, on_windows=interrupt)
    again = run(job)
    assert again.resumed_windows > 0
    assert left(again) == whole
