"""Tests ``--profile auto``: the winner of the last comparison, and the default without one."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from nq import extras, processor, storage
from nq.bundle import bundled_sample
from nq.config import DecisionConfig, WindowConfig
from nq.inference.profile import CANDIDATES, Profile, default_choice, without_gain
from nq.lab import choose
from nq.lab.choose import COMPARED, comparison_key, forget
from nq.model.model import Model
from nq.questions import Questions
from nq.runs.job import Job
from tests.support.jobs import chosen
from tests.support.nq_records import write_lines


@pytest.fixture
def job(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setitem(CANDIDATES, "CPU", ("grappler+buckets",))
    monkeypatch.setattr(choose, "PAGE_TOKENS", 10**6)
    return Job([bundled_sample()], tiny_model, root=tmp_path, limit=3)


def write_comparison(folder: Path, key: str, seconds: int, **values: str | list[str]) -> None:
    """Writes what a comparison that ended so many seconds after 1970 keeps."""
    folder.mkdir()
    profiles = ["baseline", "grappler+buckets"]
    storage.write_json(folder / COMPARED, {"key": key, "profiles": profiles, **values})
    os.utime(folder / COMPARED, (seconds, seconds))


def test_the_winner_of_the_last_fitting_comparison_is_taken(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(extras.EXTRAS, "openvino", ("no_such_package",))
    questions = Questions(job.files)
    key = comparison_key(job.model, questions)
    other = comparison_key(replace(job.model, decision=DecisionConfig(rule="squad")), questions)
    write_comparison(tmp_path / "last", key, 2, take="xla")
    write_comparison(tmp_path / "earlier", key, 1, take="mixed")
    write_comparison(tmp_path / "other", other, 3, take="mixed+prune")
    write_comparison(tmp_path / "not_installed", key, 3, take="buckets+openvino")
    write_comparison(tmp_path / "without_a_winner", key, 3, take="")
    write_comparison(tmp_path / "unfinished", key, 3)
    write_comparison(tmp_path / "without_the_default", key, 3, take="mixed", profiles=["baseline"])
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / COMPARED).write_text("[")
    (tmp_path / "folder" / COMPARED).mkdir(parents=True)
    why = f"profile auto: xla, the profile to take of nq compare in {tmp_path}/last"
    assert chosen(job) == ("xla", why)
    assert forget(tmp_path / "last") == {}
    assert forget(tmp_path)[str(tmp_path / "last")] == "xla"
    assert forget(tmp_path) == {}
    assert chosen(job)[0] == "grappler+buckets"


def test_the_default_may_be_one_without_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "has_fast_bfloat16", lambda: True)
    for device in ("CPU", "GPU"):
        both = default_choice(device, mixed=False), default_choice(device)
        assert ["mixed" in profile for profile in both] == [False, True]


def with_windows(model: Model, windows: WindowConfig) -> Model:
    return Model.alone(model.reader.files, windows, model.decision)


def test_what_a_comparison_is_for(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    model = job.model
    others = (
        with_windows(model, replace(model.windows, max_seq_length=24)),
        replace(model, decision=DecisionConfig(rule="bert-joint")),
    )
    questions = Questions(job.files)
    keys = {comparison_key(one, questions) for one in (model, *others)}
    monkeypatch.setattr(choose, "PAGE_TOKENS", 2)  # whole pages
    keys.add(comparison_key(model, questions))
    monkeypatch.setattr(choose, "PAGE_TOKENS", 10**6)
    monkeypatch.setattr(processor, "name", lambda: "another")
    keys.add(comparison_key(model, questions))
    assert len(keys) == 5
    stride = replace(model.windows, doc_stride=8)
    assert comparison_key(with_windows(model, stride), questions) in keys


def test_whole_pages_are_pruned_by_default_but_no_passages_of_a_retriever(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen(job)[0] == "grappler+buckets"
    monkeypatch.setattr(choose, "PAGE_TOKENS", 2)
    assert chosen(job)[0] == "grappler+buckets+prune"
    no_margin = replace(job.model, decision=DecisionConfig(rule="bert-joint"))
    assert chosen(replace(job, model=no_margin))[0] == "grappler+buckets"
    retrieved = {"question": "when", "ctxs": [{"text": "It was lit in 1874."}]}
    data = write_lines(tmp_path / "retrieved.jsonl", [retrieved])
    assert chosen(replace(job, files=(str(data),)))[0] == "grappler+buckets"


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
        assert bool(without_gain(Profile("mixed+buckets"), "CPU")) == ("mixed" not in expected)
    monkeypatch.setitem(extras.EXTRAS, "openvino", ("no_such_package",))
    assert default_choice("CPU") == "grappler+frozen+buckets"
    assert default_choice("GPU") == "mixed+xla+grappler+buckets"
