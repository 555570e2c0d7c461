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

from nq import extras, storage
from nq.bundle import bundled_sample
from nq.errors import Error
from nq.inference import cores
from nq.inference.profile import AUTO
from nq.runs import choices, instance_choice, profile_choice
from nq.runs.choices import PAGES, Choice
from nq.runs.instance_choice import InstancesTrial
from nq.runs.job import Job
from nq.runs.profile_choice import PruningTrial
from nq.runs.run import run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def job(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))  # others may use the machine
    monkeypatch.setitem(profile_choice.CANDIDATES, "CPU", ("grappler+buckets", "mixed+buckets"))
    monkeypatch.setattr(cores, "available", lambda: (0,))  # no instances are tried
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
    chosen, tried = profile_choice.choose_profile(job, tolerance=1e-4)
    assert tried and "mixed" not in str(chosen)


@pytest.mark.slow
def test_a_candidate_that_is_not_installed_is_logged_and_not_tried(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(profile_choice.CANDIDATES, "CPU", ("openvino",))
    monkeypatch.setitem(extras.EXTRAS, "openvino", ("no_such_package",))
    caplog.set_level(logging.INFO)
    chosen, _ = profile_choice.choose_profile(job)
    assert str(chosen) in ("baseline", "prune")
    assert "openvino: no_such_package not installed" in caplog.text


@pytest.mark.slow
def test_the_choice_is_kept_for_later_runs(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, tried = profile_choice.choose_profile(job)
    file = tmp_path / "cache" / "nq" / "profiles.json"
    assert tried and file == choices.cache_file()
    (kept,) = storage.read_json(file).values()
    assert (kept["profile"], kept["pages"]) == (str(first), 3)
    assert f"kept for later runs in {file}" in caplog.text
    caplog.clear()
    assert profile_choice.choose_profile(job) == (first, False)
    assert f"chosen by an earlier trial (kept in {file}; --no-cache tries again)" in caplog.text
    before = file.read_bytes()
    assert profile_choice.choose_profile(job, cache=False)[1]
    assert file.read_bytes() == before


@pytest.mark.slow
def test_instances_are_tried_and_kept_if_they_are_faster(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(profile_choice, "CANDIDATES", {"CPU": ()})
    monkeypatch.setattr(cores, "available", lambda: (0, 0))
    monkeypatch.setattr(instance_choice, "GAIN", 0.0)
    monkeypatch.setattr(instance_choice, "MEMORY_SHARE", math.inf)  # pytest may have grown large
    caplog.set_level(logging.INFO)
    first, tried = profile_choice.choose_profile(job)
    assert tried and first.instances == 2
    assert re.search(
        r"baseline: 2 instances of 1 thread: [\d.]+ windows/s, one process: [\d.]+ win", caplog.text
    )
    assert f"profile auto: {first.profile}, 2 instances of 1 thread" in caplog.text
    chosen = first.of(job)
    assert (str(chosen.profile), chosen.instances, chosen.threads) == (first.profile, 2, 1)
    assert profile_choice.choose_profile(job) == (first, False)
    (kept,) = storage.read_json(choices.cache_file()).values()
    assert kept["instances"] == 2


def test_instances_are_not_tried_without_memory_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_choice, "available_memory_bytes", lambda: 1 << 20)
    with pytest.raises(Error, match=r"instances may need .* of memory that are free: not tried"):
        instance_choice._check_memory(2)


@pytest.mark.parametrize(("speeds", "accepted"), [((10.0, 10.4), False), ((10.0, 11.0), True)])
def test_instances_must_be_worth_their_memory(speeds: tuple[float, float], accepted: bool) -> None:
    assert InstancesTrial(2, speeds).accepted == accepted


def test_numbers_that_the_user_gives_are_not_tried(job: Job) -> None:
    plain = replace(job, profile="baseline")
    given = replace(plain, instances=2, threads=1), replace(plain, threads=1)
    assert len({choices.key(one, "CPU") for one in (plain, *given)}) == 3
    assert Choice("mixed").of(replace(job, instances=3, threads=2)).instances == 3


def test_a_damaged_file_is_ignored_and_replaced(job: Job) -> None:
    choice, file = Choice("mixed", PAGES), choices.cache_file()
    assert choices.read("key", "") is None
    for damaged in ("[]", "{", '{"key": 3}', '{"key": {"name": 3}}', '{"key": "mixed"}'):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(damaged)
        assert choices.read("key", "") is None
        assert choices.write("key", choice)
        assert choices.read("key", "") == choice


def test_a_choice_from_few_pages_is_for_the_same_windows_only(job: Job) -> None:
    few, enough = Choice("mixed", PAGES - 1, "mine"), Choice("xla", PAGES, "mine")
    assert choices.write("few", few) and choices.write("enough", enough)
    assert (choices.read("few", "mine"), choices.read("few", "others")) == (few, None)
    assert choices.read("enough", "others") == enough


@pytest.mark.slow
def test_a_choice_on_a_busy_machine_is_not_kept(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    assert profile_choice.choose_profile(job)[1]
    assert "not kept for later runs: the load is 1000.0 on" in caplog.text
    assert not choices.cache_file().exists()


def test_a_file_that_cannot_be_written_costs_nothing(job: Job, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert not choices.write("key", Choice("mixed"))
    assert choices.read("key", "") is None


def test_other_windows_batches_or_versions_need_another_choice(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = replace(job.model.windows, max_seq_length=24)
    other = replace(job, model=replace(job.model, windows=windows))
    keys = {choices.key(some, "CPU") for some in (job, other, replace(job, batch_size=5))}
    keys.add(choices.key(job, "GPU"))
    for package in ("openvino", "keras"):
        versions = choices._versions() | {package: "0.1"}
        monkeypatch.setattr(choices, "_versions", lambda versions=versions: versions)
        keys.add(choices.key(job, "CPU"))
    assert len(keys) == 6
    assert {"keras", "numpy"} <= choices._versions().keys()


@pytest.mark.parametrize(
    ("changed", "seconds", "accepted"),
    [(0, (10.0, 4.0), True), (1, (10.0, 4.0), False), (0, (10.0, 9.5), False)],
)
def test_pruning_is_chosen_if_it_is_faster_and_changes_no_answer(
    changed: int, seconds: tuple[float, float], accepted: bool
) -> None:
    trial = PruningTrial("mixed+prune", 20, changed, seconds)
    assert trial.accepted == accepted
    assert f"answers that it changes: {changed}" in str(trial)


@pytest.mark.slow
def test_pruning_is_tried_on_whole_pages(job: Job) -> None:
    trial = profile_choice._Trials(job, 0.5).pruning("grappler+buckets")
    assert (trial.profile, trial.pages) == ("grappler+buckets+prune", 3)
    assert min(trial.seconds) > 0


@pytest.mark.slow
def test_the_time_of_the_trials_is_a_phase(job: Job) -> None:
    result = run(job)
    assert result.time["trials_s"] > 0
    phases = [s for name, s in result.time.items() if name not in ("total_s", "preprocess_s")]
    assert sum(phases) == pytest.approx(result.time["total_s"], rel=1e-6)
    assert "trials of profiles" in result.not_comparable
    assert "trials of profiles" not in run(job).not_comparable


@pytest.mark.slow
def test_windows_that_trials_prepare_do_not_make_a_new_output_folder_foreign(
    job: Job, tmp_path: Path
) -> None:
    output = tmp_path / "new"
    assert run(replace(job, output=output)).folder == output
    assert not list(output.glob("*.lock"))


@pytest.mark.slow
def test_only_our_own_lines_are_logged(job: Job, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nq.answer", "--profile", "auto", "--limit", "2", "--json"]
    folders = ["--model", str(job.model.folder), "--root", str(tmp_path), "--no-track"]
    done = subprocess.run(
        [*command, *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = done.stderr.splitlines()
    assert len(lines) > 3 and all(line.startswith("nq: ") for line in lines)
