"""Tests the progress that workers write while a pipeline runs."""

from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from nq.beam.pipelines import CountExamples, completed
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
