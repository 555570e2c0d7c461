"""Tests which examples of a job are answered, and in which order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nq.bundle import bundled_sample
from nq.errors import Error
from nq.formats import inputs
from nq.runs.job import Job
from nq.runs.scoring import PhaseTimer, Plan, Scoring, open_scoring, read_request


@pytest.fixture
def job(tiny_model: Path, tmp_path: Path) -> Job:
    """Two files of three good records each, one of which occurs twice, and a bad line."""
    lines = bundled_sample().read_bytes().splitlines(keepends=True)
    files = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    files[0].write_bytes(b"".join([*lines[:2], b"bad\n", lines[2]]))
    files[1].write_bytes(b"".join([lines[1], *lines[3:5]]))
    return Job(files, tiny_model, "baseline", batch_size=8, root=tmp_path / "runs")


def keys(job: Job) -> list[tuple[int, int]]:
    """Returns file number and line of every good record."""
    return [
        (source.file_index, source.line)
        for request in job.requests()
        for source, _ in read_request(request)
    ]


def answered(scoring: Scoring) -> list[tuple[object, int]]:
    """Returns id and number of scored windows of each example."""
    return [(example.example_id, len(scores)) for example, scores in scoring]


EXPECTED = [*((0, line) for line in (1, 2, 4)), *((1, line) for line in (1, 2, 3))]


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 30])
def test_records_are_read_in_order_with_file_and_line(job: Job, chunk_bytes: int) -> None:
    job = replace(job, chunk_bytes=chunk_bytes)
    assert len(job.requests()) == (2 if chunk_bytes == 1 else 1)
    assert keys(job) == EXPECTED


def test_a_bad_line_counts_for_the_limit(job: Job) -> None:
    assert keys(replace(job, limit=4)) == EXPECTED[:3]
    assert keys(replace(job, limit=5)) == EXPECTED[:4]


@pytest.mark.slow
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 30])
def test_of_two_records_with_the_same_id_the_first_is_answered(job: Job, chunk_bytes: int) -> None:
    ids = [example.example_id for example in inputs.read_examples(bundled_sample())][:5]
    job = replace(job, chunk_bytes=chunk_bytes)
    with open_scoring(Plan.of(job), PhaseTimer()) as scoring:
        first, second = answered(scoring), answered(scoring)
        assert scoring.chunks.total("windows") > sum(windows for _, windows in first)
        (duplicate,) = scoring.duplicates
    assert [example_id for example_id, _ in first] == ids
    assert second == first
    assert (duplicate.source.file_index, duplicate.source.line) == (1, 1)
    assert f"example_id {ids[1]} occurs twice" in duplicate.reason


@pytest.mark.slow
def test_files_that_change_during_a_run_are_an_error(job: Job) -> None:
    with open_scoring(Plan.of(job), PhaseTimer()) as scoring:
        assert len(answered(scoring)) == 5
        second = Path(job.files[1])
        lines = second.read_bytes().splitlines(keepends=True)
        second.write_bytes(b"".join(lines[:2]))
        with pytest.raises(Error, match=r"found 5 examples in .*b\.jsonl, expected 6 .* run again"):
            answered(scoring)
        second.write_bytes(b"".join([*lines, lines[0]]))
        with pytest.raises(Error, match=r"no windows of input file 1, line 4.* run again"):
            answered(scoring)
