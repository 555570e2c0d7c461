"""Tests ``--profile auto``: what is tried within its share of the time, rejected, chosen, kept."""

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
from nq.config import AUTO, Compute, DecisionConfig
from nq.runs import profile_choice
from nq.runs.job import Job
from nq.runs.measure import Clock
from nq.runs.profile_choice import (
    Choice,
    Trials,
    choose_profile,
    default_choice,
    read_choice,
    write_choice,
)
from nq.runs.run import run


@pytest.fixture
def job(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job that is large enough for all trials."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))  # others may use the machine
    monkeypatch.setitem(profile_choice.CANDIDATES, "CPU", ("grappler+buckets", "mixed+buckets"))
    monkeypatch.setattr(profile_choice, "SHARE", math.inf)
    monkeypatch.setattr(profile_choice, "MIN_WINDOWS", 1)
    monkeypatch.setattr(profile_choice, "PAGE_WINDOWS", 10**6)
    monkeypatch.setattr(profile_choice, "MIN_PAGES", 3)
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
    monkeypatch.setattr(profile_choice, "TOLERANCE", 1e-4)
    chosen = Trials(job, Clock()).choose("mixed+buckets")
    assert chosen.removesuffix("+prune") in ("baseline", "prune", "grappler+buckets")
    assert re.search(r"  baseline: [\d.]+ windows/s\n", caplog.text)
    assert re.search(r"  mixed\+buckets: drift [\d.]+, more than 0.0001\n", caplog.text)
    assert "  openvino: no_such_package not installed\n" in caplog.text


@pytest.mark.slow
def test_the_choice_is_kept_and_replaced_on_a_quiet_machine(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    result = run(replace(job, output=tmp_path / "new"))  # its windows do not make it foreign
    assert result.time["trials_s"] > 0
    assert "trials of profiles" in result.not_comparable
    assert "until one with a load below that of now, 1000.0" in caplog.text
    (kept,) = storage.read_json(profile_choice.cache_file()).values()
    assert kept == {"profile": result.profile, "is_quiet": False}
    assert choose_profile(job, Clock()) == (result.profile, False)
    assert "trials of profiles" not in run(job).not_comparable
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert choose_profile(job, Clock())[1]
    (kept,) = storage.read_json(profile_choice.cache_file()).values()
    assert kept["is_quiet"] and choose_profile(job, Clock()) == (kept["profile"], False)


@pytest.mark.slow
def test_a_job_has_only_trials_for_which_there_is_time(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(profile_choice, "SHARE", 0.0)
    assert choose_profile(job, Clock(), cache=False) == ("grappler+buckets", True)
    assert "trials at most 0 s" in caplog.text
    assert "no time for baseline and those after it" in caplog.text
    monkeypatch.setattr(profile_choice, "MIN_WINDOWS", 10**6)
    assert choose_profile(job, Clock()) == ("grappler+buckets", False)
    assert "the default for this machine: " in caplog.text and "which need 1000000" in caplog.text
    assert not profile_choice.cache_file().exists()
    key = profile_choice.choice_key(job, "CPU", may_prune=False)
    write_choice(key, Choice("mixed", is_quiet=False))
    assert choose_profile(job, Clock()) == ("mixed", False)


def test_a_short_job_of_whole_pages_is_pruned_without_trials(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_choice, "MIN_WINDOWS", 10**6)
    monkeypatch.setattr(profile_choice, "PAGE_WINDOWS", 2)
    assert choose_profile(job, Clock()) == ("grappler+buckets+prune", False)
    no_margin = replace(job.model, decision=DecisionConfig(rule="bert-joint"))
    assert choose_profile(replace(job, model=no_margin), Clock()) == ("grappler+buckets", False)
    key = profile_choice.choice_key(job, "CPU", may_prune=False)
    write_choice(key, Choice("mixed"))
    assert choose_profile(job, Clock()) == ("grappler+buckets+prune", False)


def test_the_default_choice_is_fast_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for vendor, flags, expected in (
        ("GenuineIntel", "avx512_bf16 amx_bf16", "mixed+buckets+openvino"),
        ("AuthenticAMD", "avx512_bf16", "mixed+buckets+openvino"),
        ("GenuineIntel", "avx512_bf16", "buckets+openvino"),
        ("AuthenticAMD", "avx2", "buckets+openvino"),
    ):
        text = f"vendor_id\t: {vendor}\nflags\t\t: fpu {flags}\n"
        monkeypatch.setattr(processor, "_description", lambda text=text: text)
        assert default_choice("CPU") == expected
    monkeypatch.setitem(extras.EXTRAS, "openvino", ("no_such_package",))
    assert default_choice("CPU") == "grappler+frozen+buckets"
    assert default_choice("GPU") == "mixed+xla+grappler+buckets"


@pytest.mark.slow
def test_pruning_is_chosen_if_it_is_faster_and_changes_no_answer(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(profile_choice.CANDIDATES, "CPU", ())
    monkeypatch.setattr(profile_choice, "PRUNING_GAIN", 0.0)
    assert Trials(job, Clock()).choose("baseline") == "prune"
    monkeypatch.setattr(profile_choice, "MIN_PAGES", 4)
    assert Trials(job, Clock()).choose("baseline") == "baseline"
    monkeypatch.setattr(profile_choice, "MIN_PAGES", 3)
    answers = iter([(9.0, [("a",)]), (1.0, [("b",)])])
    monkeypatch.setattr(Trials, "_answer", lambda *_: next(answers))
    assert Trials(job, Clock()).choose("baseline") == "baseline"


def test_a_damaged_file_is_ignored_and_replaced(job: Job, tmp_path: Path) -> None:
    choice, file = Choice("mixed"), profile_choice.cache_file()
    for damaged in ("[]", "{", '{"key": 3}', '{"key": {"name": 3}}', '{"key": "mixed"}'):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(damaged)
        assert read_choice("key") is None
        assert write_choice("key", choice)
        assert read_choice("key") == choice
    file.unlink()
    file.mkdir()
    assert not write_choice("key", choice)
    assert read_choice("key") is None


def test_what_a_choice_depends_on(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = replace(job.model.windows, max_seq_length=24)
    computes = Compute(batch_size=5), Compute(instances=2, threads=1), Compute(threads=1)
    others = [replace(job, compute=compute) for compute in computes]
    others.append(replace(job, model=replace(job.model, windows=windows)))
    keys = {profile_choice.choice_key(one, "CPU", may_prune=False) for one in (job, *others)}
    keys.add(profile_choice.choice_key(job, "GPU", may_prune=False))
    keys.add(profile_choice.choice_key(job, "CPU", may_prune=True))
    installed = profile_choice.versions()
    assert {"keras", "numpy"} <= installed.keys()
    monkeypatch.setattr(profile_choice, "versions", lambda: installed | {"keras": "0.1"})
    keys.add(profile_choice.choice_key(job, "CPU", may_prune=False))
    assert len(keys) == 8


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become an unknown user")
def test_a_user_without_a_home_folder_keeps_no_choice() -> None:
    code = (
        "import os; from nq.runs.profile_choice import *; os.setuid(54321)\n"
        "print(read_choice('key'), write_choice('key', Choice('baseline')))"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME")}
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (process.stdout, process.stderr) == ("None False\n", "")
