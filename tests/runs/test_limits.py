"""Tests that a page with too many windows is a dead letter of the whole run, and stops nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nq.formats.fields import LIMITS
from nq.runs.job import Job
from nq.runs.run import run
from tests.nq_records import simplified, write_lines

CONTENT = 10  # pieces of the page that a window of the tiny model has at least


@pytest.mark.slow
def test_a_page_with_too_many_windows(tiny_model: Path, tmp_path: Path) -> None:
    long = simplified(2, words=LIMITS.windows * CONTENT)
    data = write_lines(tmp_path / "a.jsonl", [simplified(1), long, b"bad", simplified(3)])
    result = run(Job([data], tiny_model, "baseline", output=tmp_path / "run"))
    assert (result.examples, result.dead_letters) == (2, 2)
    lines = (tmp_path / "run" / "skipped.jsonl").read_text(encoding="utf-8").splitlines()
    first, second = map(json.loads, lines)
    assert (first["line"], first["record"]) == (2, long["question_text"])
    assert first["reason"].startswith("too large: ")
    assert first["reason"].endswith(f" windows, the limit is {LIMITS.windows}")
    assert (second["line"], second["record"]) == (3, "bad")
