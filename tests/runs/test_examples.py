"""Tests which examples of a job are answered, and in which order."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from nq.beam.prepare import prepare
from nq.bundle import bundled_sample
from nq.formats import inputs
from nq.runs.config import Compute
from nq.runs.job import Job
from nq.runs.measure import Clock
from nq.runs.plan import Plan, windows_folder
from nq.runs.result import PREDICTIONS
from nq.runs.run import run
from nq.runs.scoring import Scoring, open_scoring


@pytest.fixture
def job(tiny_model: Path, tmp_path: Path) -> Job:
    """Two files of three good records each, one of which occurs twice, and a bad line."""
    lines = bundled_sample().read_bytes().splitlines(keepends=True)
    files = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    files[0].write_bytes(b"".join([*lines[:2], b"bad\n", lines[2]]))
    files[1].write_bytes(b"".join([lines[1], *lines[3:5]]))
    return Job(files, tiny_model, "baseline", root=tmp_path / "runs", compute=Compute(batch_size=8))


def keys(job: Job) -> list[tuple[int, int]]:
    """Returns file number and line of every good record."""
    return [
        (one.source.file_index, one.source.line)
        for request in job.requests()
        for one in prepare(request, windows_folder(job.root, request)).read(request)
    ]


def answered(scoring: Scoring) -> list[tuple[object, int]]:
    """Returns id and number of scored windows of each example."""
    return [(example.example_id, len(scores)) for example, scores in scoring]


@pytest.mark.slow
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 30])
def test_of_two_records_with_the_same_id_the_first_is_answered(job: Job, chunk_bytes: int) -> None:
    ids = [example.example_id for example in inputs.read_examples(bundled_sample())][:5]
    job = replace(job, compute=replace(job.compute, chunk_bytes=chunk_bytes))
    with open_scoring(Plan(job), Clock()) as scoring:
        first, second = answered(scoring), answered(scoring)
        assert scoring.chunks.total("windows") > sum(windows for _, windows in first)
        dead_letters = io.BytesIO()
        assert len(list(scoring.answers(0, dead_letters))) == len(first)
        duplicate = json.loads(dead_letters.getvalue().splitlines()[-1])
    assert [example_id for example_id, _ in first] == ids
    assert second == first
    assert (Path(duplicate["file"]).name, duplicate["line"]) == ("b.jsonl", 1)
    assert f"example_id {ids[1]} occurs twice" in duplicate["reason"]


@pytest.mark.slow
def test_the_input_is_not_read_again_once_it_is_prepared(job: Job) -> None:
    """Answers are those of the files at the start of the run, whatever happens to them later."""
    files = [Path(file) for file in job.files]
    before = [path.read_bytes() for path in files]
    job = replace(job, compute=Compute(batch_size=1))
    expected = (run(job).folder / PREDICTIONS).read_bytes()

    def on_progress(windows: int, total: int) -> None:
        files[0].write_bytes(before[0].replace(b" the ", b" a "))
        files[1].unlink(missing_ok=True)

    other = replace(job, root=job.root / "other")
    changed = run(other, progress=on_progress)
    assert (changed.folder / PREDICTIONS).read_bytes() == expected
    for path, data in zip(files, before, strict=True):
        path.write_bytes(data.replace(b" the ", b" a "))
    again = run(other)  # the new content is another job
    assert again.resumed_windows == 0 and again.folder != changed.folder
