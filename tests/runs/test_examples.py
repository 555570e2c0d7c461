"""Tests which examples of a job are answered, in which order, and how often they are decoded."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nq import worker
from nq.bundle import bundled_sample
from nq.evaluation.answer_files import PREDICTIONS
from nq.formats import inputs
from nq.preprocess import shards
from nq.questions import read_examples
from nq.runs.config import Compute
from nq.runs.job import Job
from nq.runs.run import run
from nq.runs.scoring import Scoring
from nq.storage import DEAD_LETTERS
from tests.support.jobs import scoring

RECORDS = 7
COUNTED = """
import nq.formats.inputs as inputs, nq.preprocess.shards as shards
def counting(source, *rest, decode=inputs.decode_row):
    with open({log!r}, "a") as file:
        file.write(source.path + str(source.line) + chr(10))
    return decode(source, *rest)
inputs.decode_row, shards.SHARD_BYTES = counting, {shard_bytes}
"""
"""Writes what a process decodes to a file, and sets the size of shards."""


@pytest.fixture
def job(tiny_model: Path, tmp_path: Path) -> Job:
    """Two files of three good records each, one of which occurs twice, and a bad line."""
    lines = bundled_sample().read_bytes().splitlines(keepends=True)
    files = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    files[0].write_bytes(b"".join([*lines[:2], b"bad\n", lines[2]]))
    files[1].write_bytes(b"".join([lines[1], *lines[3:5]]))
    return Job(files, tiny_model, "openvino", root=tmp_path / "runs", compute=Compute(batch_size=8))


def answered(scores: Scoring) -> list[tuple[object, int]]:
    """Returns id and number of scored windows of each example."""
    return [(example.example_id, len(scores)) for example, scores in scores]


@pytest.mark.slow
def test_of_two_records_with_the_same_id_the_first_is_answered(job: Job) -> None:
    ids = [example.example_id for example in read_examples(bundled_sample())][:5]
    with scoring(job) as scores:
        first, second = answered(scores), answered(scores)
        assert scores.windows.counts.windows == sum(windows for _, windows in first)
        *answers, _, letter = scores.answers(0)
    assert isinstance(letter, bytes) and len(answers) == len(first)
    duplicate = json.loads(letter)
    assert [example_id for example_id, _ in first] == ids
    assert second == first
    assert (Path(duplicate["file"]).name, duplicate["line"]) == ("b.jsonl", 1)
    assert f"example_id {ids[1]} occurs twice" in duplicate["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("shard_bytes", [1, 1 << 30])
def test_a_record_is_decoded_once_by_both_processes_and_shards_change_nothing(
    job: Job, tmp_path: Path, shard_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(job)
    code, start = COUNTED.format(log=str(tmp_path / "log"), shard_bytes=shard_bytes), worker.python
    monkeypatch.setattr(inputs, "decode_row", inputs.decode_row)
    monkeypatch.setattr(shards, "SHARD_BYTES", shard_bytes)
    exec(code, {})  # in this process
    monkeypatch.setattr(worker, "python", lambda c, text, **others: start(c, code + text, **others))
    found = run(replace(job, root=tmp_path / "other"))
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == len(set(lines)) == RECORDS
    for name in (PREDICTIONS, DEAD_LETTERS):
        assert (found.folder / name).read_bytes() == (expected.folder / name).read_bytes()
    assert len(list(tmp_path.glob("other/windows-*/windows-*"))) == (5 if shard_bytes == 1 else 1)


@pytest.mark.slow
def test_the_input_is_not_read_again_once_it_is_prepared(job: Job) -> None:
    """Answers are those of the files at the start of the run, whatever happens to them later."""
    files = [Path(file) for file in job.files]
    before = [path.read_bytes() for path in files]
    job = replace(job, compute=Compute(batch_size=1))
    expected = (run(job).folder / PREDICTIONS).read_bytes()
    other = replace(job, root=job.root / "other")

    def on_progress(windows: int, total: int) -> None:
        while b'"complete": true' not in next(other.root.glob("*/manifest.json")).read_bytes():
            time.sleep(0.01)
        files[0].write_bytes(before[0].replace(b" the ", b" a "))
        files[1].unlink(missing_ok=True)

    changed = run(other, progress=on_progress)
    assert (changed.folder / PREDICTIONS).read_bytes() == expected
    for path, data in zip(files, before, strict=True):
        path.write_bytes(data.replace(b" the ", b" a "))
    again = run(other)  # the new content is another job
    assert again.totals.resumed_windows == 0 and again.folder != changed.folder
