"""``--profile auto``: what is tried, what is dropped, what is remembered."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from nq.bundle import bundled_sample
from nq.config import DecisionConfig
from nq.inference.profile import PACKAGES, Profile
from nq.model.checkpoint import load_settings
from nq.runs import profile_choice
from nq.runs.job import Job

ROOT = Path(__file__).parents[1]


@pytest.fixture
def job(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(profile_choice.CANDIDATES, "CPU", ("grappler+buckets", "mixed+buckets"))
    windows = load_settings(tiny_model).windows
    files = (str(bundled_sample()),)
    return Job(files, tiny_model, Profile(), windows, DecisionConfig(), 4, root=tmp_path, limit=3)


def test_every_candidate_is_tried_beside_baseline(job: Job) -> None:
    found = list(profile_choice.trials(job))
    assert [t.profile for t in found] == ["baseline", "grappler+buckets", "mixed+buckets"]
    assert all(t.windows_per_s > 0 and not t.why_not for t in found)
    assert found[0].drift == 0 < found[2].drift


def test_who_drifts_too_far_is_out(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_choice, "TOLERANCE", 1e-4)
    baseline, exact, mixed = profile_choice.trials(job)
    assert not baseline.why_not and not exact.why_not
    assert "more than 0.0001" in mixed.why_not
    assert profile_choice.choose(job) in (Profile(), Profile.parse("grappler+buckets"))


def test_what_is_not_installed_is_said_and_not_tried(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(profile_choice.CANDIDATES, "CPU", ("openvino",))
    monkeypatch.setitem(PACKAGES, "openvino", ("no_such_package",))
    caplog.set_level(logging.INFO)
    assert profile_choice.choose(job) == Profile()
    assert "openvino: no_such_package not installed" in caplog.text


def test_the_choice_is_remembered_and_a_broken_memory_is_no_matter(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first = profile_choice.choose(job)
    cache = tmp_path / "cache" / "nq" / "profiles.json"
    assert list(json.loads(cache.read_text()).values()) == [str(first)]
    caplog.clear()
    assert profile_choice.choose(job) == first
    assert "as found before" in caplog.text and "trying" not in caplog.text
    for broken in ("[]", "{", '{"x": 3}'):
        cache.write_text(broken)
        assert isinstance(profile_choice.choose(job), Profile)


def test_other_windows_are_another_choice(job: Job) -> None:
    from dataclasses import replace

    other = replace(job, windows=replace(job.windows, max_seq_length=24))
    assert (
        profile_choice._key(job)
        != profile_choice._key(other)
        != profile_choice._key(replace(job, batch_size=5))
    )


def test_it_tells_its_own_lines_alone(job: Job, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nq.answer", "--profile", "auto", "--limit", "2", "--json"]
    places = ["--model", str(job.model), "--root", str(tmp_path), "--no-track"]
    done = subprocess.run([*command, *places], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) > 3 and all(line.startswith("nq: ") for line in lines)
