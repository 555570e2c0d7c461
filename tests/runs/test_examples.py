"""Tests which examples of a job are answered, and in which order."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nq.bundle import bundled_sample
from nq.config import Compute
from nq.errors import Error
from nq.formats import inputs
from nq.preprocess.request import Request
from nq.runs.job import Job
from nq.runs.measure import Clock
from nq.runs.plan import Plan
from nq.runs.result import JOB, PREDICTIONS
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


def answered(scoring: Scoring) -> list[tuple[object, int]]:
    """Returns id and number of scored windows of each example."""
    return [(example.example_id, len(scores)) for example, scores in scoring]


@pytest.mark.slow
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 30])
def test_of_two_records_with_the_same_id_the_first_is_answered(job: Job, chunk_bytes: int) -> None:
    ids = [example.example_id for example in inputs.read_examples(bundled_sample())][:5]
    job = replace(job, compute=replace(job.compute, chunk_bytes=chunk_bytes))
    with open_scoring(Plan.of(job), Clock()) as scoring:
        first, second = answered(scoring), answered(scoring)
        assert scoring.chunks.total("windows") > sum(windows for _, windows in first)
        duplicate = json.loads(list(scoring.dead_letters())[-1])
    assert [example_id for example_id, _ in first] == ids
    assert second == first
    assert (Path(duplicate["file"]).name, duplicate["line"]) == ("b.jsonl", 1)
    assert f"example_id {ids[1]} occurs twice" in duplicate["reason"]


LINES = bundled_sample().read_bytes().splitlines(keepends=True)
CHANGES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "shorter": (
        lambda lines: lines[:2],
        "there are 5 examples, expected 6",
    ),
    "other page": (
        lambda lines: [lines[0], lines[1].replace(b" the ", b" a "), *lines[2:]],
        r"b\.jsonl, line 2, has changed since its windows",
    ),
    "other gold": (
        lambda lines: [line.replace(b'"NONE"', b'"YES"') for line in lines],
        r"b\.jsonl has changed since this command",
    ),
}


@pytest.mark.slow
def test_files_that_change_during_a_run_are_an_error(job: Job) -> None:
    second = Path(job.files[1])
    lines = second.read_bytes().splitlines(keepends=True)
    with open_scoring(Plan.of(job), Clock()) as scoring:
        assert len(answered(scoring)) == 5
        for name, (change, message) in CHANGES.items():
            second.write_bytes(b"".join(change(lines)))
            assert second.read_bytes() != b"".join(lines), name
            with pytest.raises(Error, match=r"b\.jsonl has changed"):
                answered(scoring)  # at the beginning of the pass
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Request, "check_unchanged", once(Request.check_unchanged))
                with pytest.raises(Error, match=message):
                    answered(scoring)
        second.write_bytes(b"".join(lines))
        assert len(answered(scoring)) == 5


def once(check: Callable[[Request], None]) -> Callable[[Request], None]:
    """Returns a check that the first call does not make, as if a file changed right after it."""
    calls: list[Request] = []

    def skip_first(request: Request) -> None:
        calls.append(request)
        if len(calls) > 1:
            check(request)

    return skip_first


@pytest.mark.slow
@pytest.mark.parametrize("change", ["other page", "other gold"])
def test_a_run_whose_input_changes_while_it_predicts_leaves_no_answers(
    job: Job, change: str
) -> None:
    first = Path(job.files[0])
    lines, status = LINES[:3], first.stat()
    first.write_bytes(b"".join(lines))
    job = replace(job, files=job.files[:1], compute=Compute(batch_size=1))

    def on_progress(windows: int, total: int) -> None:
        if first.read_bytes() == b"".join(lines):
            first.write_bytes(b"".join(CHANGES[change][0](lines)))
            os.utime(first, ns=(status.st_atime_ns, status.st_mtime_ns))

    with pytest.raises(Error, match=r"a\.jsonl.* changed.* run "):
        run(job, progress=on_progress)
    assert not list(job.root.glob(f"*/{PREDICTIONS}")) + list(job.root.glob(f"*/{JOB}"))
    changed = run(job)  # the new content is another job
    assert changed.resumed_windows == 0 and changed.examples == 3
