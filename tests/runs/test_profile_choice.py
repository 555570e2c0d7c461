"""Tests ``--profile auto``: which candidates are tried, rejected, chosen and stored."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nq import checksums, extras
from nq.bundle import bundled_sample
from nq.inference.profile import AUTO, Profile
from nq.runs import profile_choice
from nq.runs.job import Job

ROOT = Path(__file__).parents[2]


@pytest.fixture
def job(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(profile_choice.CANDIDATES, "CPU", ("grappler+buckets", "mixed+buckets"))
    return Job([bundled_sample()], tiny_model, AUTO, batch_size=4, root=tmp_path, limit=3)


@pytest.mark.slow
def test_every_candidate_is_tried_besides_baseline(job: Job) -> None:
    trials = list(profile_choice.trials(job))
    assert [t.profile for t in trials] == ["baseline", "grappler+buckets", "mixed+buckets"]
    assert all(t.windows_per_s > 0 and not t.rejected for t in trials)
    assert trials[0].drift == 0 < trials[2].drift


@pytest.mark.slow
def test_a_candidate_that_drifts_beyond_the_tolerance_is_rejected(job: Job) -> None:
    baseline, exact, mixed = profile_choice.trials(job, tolerance=1e-4)
    assert not baseline.rejected and not exact.rejected
    assert "more than 0.0001" in mixed.rejected
    chosen = profile_choice.choose_profile(job, tolerance=1e-4)
    assert chosen in (Profile(), Profile.parse("grappler+buckets"))


def test_a_candidate_that_is_not_installed_is_logged_and_not_tried(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(profile_choice.CANDIDATES, "CPU", ("openvino",))
    monkeypatch.setitem(extras.EXTRAS, "openvino", ("no_such_package",))
    caplog.set_level(logging.INFO)
    assert profile_choice.choose_profile(job) == Profile()
    assert "openvino: no_such_package not installed" in caplog.text


@pytest.mark.slow
def test_the_choice_is_stored_and_a_damaged_store_is_ignored(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first = profile_choice.choose_profile(job)
    cache = tmp_path / "cache" / "nq" / "profiles.json"
    assert set(checksums.read_json(cache).values()) == {str(first)}
    caplog.clear()
    assert profile_choice.choose_profile(job) == first
    assert "chosen by an earlier trial" in caplog.text and "trying" not in caplog.text
    for damaged in ("[]", "{", '{"x": 3}'):
        cache.write_text(damaged)
        assert isinstance(profile_choice.choose_profile(job), Profile)


def test_other_windows_or_batches_need_another_choice(job: Job) -> None:
    other = replace(job, windows=replace(job.windows, max_seq_length=24))
    assert (
        profile_choice._key(job)
        != profile_choice._key(other)
        != profile_choice._key(replace(job, batch_size=5))
    )


@pytest.mark.slow
def test_only_our_own_lines_are_logged(job: Job, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nq.answer", "--profile", "auto", "--limit", "2", "--json"]
    folders = ["--model", str(job.model), "--root", str(tmp_path), "--no-track"]
    done = subprocess.run(
        [*command, *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = done.stderr.splitlines()
    assert len(lines) > 3 and all(line.startswith("nq: ") for line in lines)
