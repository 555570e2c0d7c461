"""Tests the progress that workers write while a pipeline runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from nq.beam import progress
from nq.beam.progress import CountExamples, completed, reported
from tests.beam.folder_file_system import uri


@pytest.mark.parametrize("place", [str, uri])
def test_the_counts_of_all_workers_are_added(
    tmp_path: Path, place: Callable[[object], str]
) -> None:
    folder = place(tmp_path / "progress")
    assert completed(folder) == 0
    for elements in (3, 4):
        with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
            _ = pipeline | beam.Create(range(elements)) | beam.ParDo(CountExamples(folder))
    (tmp_path / "progress" / "is-written-just-now").touch()
    (tmp_path / "progress" / "damaged").write_bytes(b"\xff")
    assert completed(folder) == 7


def test_progress_is_reported_while_the_block_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "POLL_S", 0.001)
    monkeypatch.setattr(progress, "WRITE_S", -1.0)
    seen: list[tuple[int, int]] = []
    more = threading.Semaphore(0)

    def receive(new: int, total: int) -> None:
        seen.append((new, total))
        more.release()

    step = CountExamples(str(tmp_path))
    step.setup()
    with reported(str(tmp_path), receive, 2):
        for element in "abc":
            assert list(step.process(element)) == [element]
            assert more.acquire(timeout=60)
    assert seen == [(1, 2), (1, 2), (1, 3)]
