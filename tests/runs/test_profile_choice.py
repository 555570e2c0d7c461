"""Tests ``--profile auto``: which candidates are tried, rejected, chosen and stored."""

from __future__ import annotations

import logging
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nq import extras, processor, storage
from nq.bundle import bundled_sample
from nq.config import AUTO, Compute
from nq.runs import profile_choice
from nq.runs.job import Job
from nq.runs.profile_choice import PAGES, Choice, Trials, choose_profile, read_choice, write_choice
from nq.runs.run import run


@pytest.fixture
def job(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))  # others may use the machine
    monkeypatch.setitem(profile_choice.CANDIDATES, "CPU", ("grappler+buckets", "mixed+buckets"))
    monkeypatch.setattr(processor, "cores", lambda: (0,))  # no instances are tried
    compute = Compute(batch_size=4)
    return Job([bundled_sample()], tiny_model, AUTO, root=tmp_path, limit=3, compute=compute)


@pytest.mark.slow
def test_candidates_that_drift_or_are_not_installed_are_rejected(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    names = ("grappler+buckets", "mixed+buckets", "openvino")
    monkeypatch.setitem(profile_choice.CANDIDATES, "CPU", names)
    monkeypatch.setitem(extras.EXTRAS, "openvino", ("no_such_package",))
    speeds = Trials(job, tolerance=1e-4).candidates()
    assert set(speeds) == {"baseline", "grappler+buckets"} and min(speeds.values()) > 0
    assert re.search(r"  baseline: [\d.]+ windows/s, drift 0\n", caplog.text)
    assert re.search(r"  mixed\+buckets: drift [\d.]+, more than 0.0001\n", caplog.text)
    assert "  openvino: no_such_package not installed\n" in caplog.text


@pytest.mark.slow
def test_the_choice_is_kept_for_later_runs(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    result = run(replace(job, output=tmp_path / "new"))  # its windows do not make it foreign
    assert result.time["trials_s"] > 0
    assert "trials of profiles" in result.not_comparable
    (kept,) = storage.read_json(tmp_path / "cache" / "nq" / "profiles.json").values()
    assert (kept["profile"], kept["pages"]) == (result.profile, 3)
    assert choose_profile(job) == (Choice(**kept), False)
    assert "trials of profiles" not in run(job).not_comparable
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    before = profile_choice.cache_file().read_bytes()
    monkeypatch.setattr(profile_choice, "CANDIDATES", {"CPU": ()})
    assert choose_profile(replace(job, limit=2))[1]  # few pages are for the same windows only
    assert "not kept for later runs: the load is 1000.0 on" in caplog.text
    assert profile_choice.cache_file().read_bytes() == before


@pytest.mark.extended
def test_instances_are_chosen_if_they_are_faster(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(profile_choice, "CANDIDATES", {"CPU": ()})
    monkeypatch.setattr(processor, "cores", lambda: (0, 0))
    monkeypatch.setattr(profile_choice, "INSTANCES_GAIN", 0.0)
    monkeypatch.setattr(profile_choice, "MEMORY_SHARE", math.inf)  # pytest may have grown large
    caplog.set_level(logging.INFO)
    choice, tried = choose_profile(job)
    assert tried and choice.instances == 2
    assert re.search(r"2 instances of 1 thread: [\d.]+ windows/s, one process: ", caplog.text)
    chosen = choice.of(job)
    assert (str(chosen.profile), chosen.instances, chosen.compute.threads) == (choice.profile, 2, 1)
    trials = Trials(job)
    monkeypatch.setattr(profile_choice, "INSTANCES_GAIN", math.inf)
    assert trials.instances("baseline") is None
    monkeypatch.setattr(profile_choice, "MEMORY_SHARE", 0.0)
    assert trials.instances("baseline") is None
    assert "of memory that are free: not tried" in caplog.text


@pytest.mark.slow
def test_pruning_is_chosen_if_it_is_faster_and_changes_no_answer(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = Trials(job)
    monkeypatch.setattr(profile_choice, "PRUNING_GAIN", 0.0)
    assert trials.pruning("grappler+buckets") == ("grappler+buckets+prune", 3)
    monkeypatch.setattr(profile_choice, "PRUNING_GAIN", math.inf)
    assert trials.pruning("grappler+buckets") == ("grappler+buckets", 3)
    answers = iter([(9.0, [("a",)]), (1.0, [("b",)])])
    monkeypatch.setattr(profile_choice, "PRUNING_GAIN", 1.0)
    monkeypatch.setattr(Trials, "_answer", lambda *_: next(answers))
    assert trials.pruning("baseline") == ("baseline", 3)


def test_a_damaged_file_is_ignored_and_replaced(job: Job, tmp_path: Path) -> None:
    choice, file = Choice("mixed", PAGES), profile_choice.cache_file()
    for damaged in ("[]", "{", '{"key": 3}', '{"key": {"name": 3}}', '{"key": "mixed"}'):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(damaged)
        assert read_choice("key", "") is None
        assert write_choice("key", choice)
        assert read_choice("key", "others") == choice
    file.unlink()
    file.mkdir()
    assert not write_choice("key", choice)
    assert read_choice("key", "") is None


def test_what_a_choice_depends_on(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = replace(job.model.windows, max_seq_length=24)
    computes = Compute(batch_size=5), Compute(instances=2, threads=1), Compute(threads=1)
    others = [replace(job, compute=compute) for compute in computes]
    others.append(replace(job, model=replace(job.model, windows=windows)))
    keys = {profile_choice.choice_key(one, "CPU") for one in (job, *others)}
    keys.add(profile_choice.choice_key(job, "GPU"))
    installed = profile_choice.versions()
    assert {"keras", "numpy"} <= installed.keys()
    monkeypatch.setattr(profile_choice, "versions", lambda: installed | {"keras": "0.1"})
    keys.add(profile_choice.choice_key(job, "CPU"))
    assert len(keys) == 7


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become an unknown user")
def test_a_user_without_a_home_folder_keeps_no_choice() -> None:
    code = (
        "import os; from nq.runs.profile_choice import *; os.setuid(54321)\n"
        "print(read_choice('key', ''), write_choice('key', Choice('baseline')))"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME")}
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (process.stdout, process.stderr) == ("None False\n", "")
