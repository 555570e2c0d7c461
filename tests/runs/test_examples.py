"""The examples of a job, in order and by place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nq.bundle import bundled_sample
from nq.config import DecisionConfig, WindowConfig
from nq.errors import Error
from nq.inference.profile import Profile
from nq.runs.examples import ByPlace, answered_examples, examples
from nq.runs.job import Job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Two files of three good records each, one of them there twice, and a bad line."""
    lines = bundled_sample().read_bytes().splitlines(keepends=True)
    files = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    files[0].write_bytes(b"".join([*lines[:2], b"bad\n", lines[2]]))
    files[1].write_bytes(b"".join([lines[1], *lines[3:5]]))
    return Job(
        tuple(map(str, files)), tmp_path, Profile(), WindowConfig(), DecisionConfig(), batch_size=8
    )


def test_each_is_answered_once(job: Job) -> None:
    everything, answered = list(examples(job)), list(answered_examples(job))
    assert [(s.file_index, s.line) for s, _ in everything] == [
        *((0, line) for line in (1, 2, 4)),
        *((1, line) for line in (1, 2, 3)),
    ]
    assert [s for s, _ in answered] == [
        s for s, _ in everything if (s.file_index, s.line) != (1, 1)
    ]
    assert len(list(examples(replace(job, limit=4)))) == 3  # the bad line counts


def test_any_order_of_places_finds_them(job: Job) -> None:
    places = {(s.file_index, s.line): example for s, example in examples(job)}
    find, draw = ByPlace(job), np.random.default_rng(1)
    for n in range(1, 8):
        keys = np.array(list(places))[draw.permutation(len(places))[:n]]
        windows = np.repeat(keys, draw.integers(1, 4, len(keys)), axis=0)
        found = find(windows)
        wanted = [places[file, line] for file, line in keys.tolist()]
        assert [e.example_id for e in found] == [e.example_id for e in wanted]
        assert [e.question for e in found] == [e.question for e in wanted]


def test_a_record_that_is_gone_is_one_line(job: Job) -> None:
    find = ByPlace(job)
    Path(job.files[1]).write_bytes(b"")
    with pytest.raises(Error, match=r"line 2 of .*b\.jsonl is no example any more"):
        find(np.array([[1, 2]]))
