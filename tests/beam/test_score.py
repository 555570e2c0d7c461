"""Tests scores and decisions in pipelines, against the run without Beam."""

from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given
from hypothesis import strategies as st

from nq.beam import Decide, MakeWindows, ReadQuestions, ScoreWindows
from nq.beam.score import _MakeParts
from nq.inference.scorer import parts
from nq.records import Example, Windowed
from nq.runs.job import Job
from nq.runs.run import run
from tests.support.jobs import predictions
from tests.support.nq_records import simplified, write_lines

IN_MEMORY = PipelineOptions(["--runner=FnApiRunner"])
RECORDS = [simplified(i, words=20 + 7 * i) for i in range(8)]


@pytest.fixture
def data(tmp_path: Path) -> str:
    write_lines(tmp_path / "a.jsonl", [*RECORDS, b"bad"])
    return str(tmp_path / "a.jsonl")


@pytest.mark.slow
def test_a_pipeline_of_the_user_gives_the_predictions_of_a_run(
    data: str, tiny_model: Path, tmp_path: Path
) -> None:
    expected = run(Job([data], tiny_model, output=tmp_path / "run", formats="nbest"))
    lines = (expected.folder / "nbest.jsonl").read_bytes().splitlines(keepends=True)
    with beam.Pipeline(options=IN_MEMORY) as pipeline:
        made = pipeline | ReadQuestions([data]) | MakeWindows(tiny_model, output="examples")
        decided = made.windows | ScoreWindows(tiny_model) | Decide(tiny_model, "nbest")
        found = decided | "Predictions" >> beam.Map(lambda one: one.prediction)
        nbest = decided | "NBest" >> beam.Map(lambda one: one.answered.outputs["nbest"])
        letters = made.dead_letters | beam.Map(lambda letter: letter.source.line)
        assert_that(found, equal_to(predictions(expected.folder)), "predictions")
        assert_that(nbest, equal_to(lines), "n-best")
        assert_that(letters, equal_to([9]), "dead letters")


@pytest.mark.slow
def test_windows_of_time_stay_apart(data: str, tiny_model: Path) -> None:
    """Examples in different windows of Beam are never in one part, and stay in their window."""
    with beam.Pipeline(options=IN_MEMORY) as pipeline:
        made = pipeline | ReadQuestions([data]) | MakeWindows(tiny_model, output="examples")
        timed = made.windows | beam.Map(
            lambda one: beam.window.TimestampedValue(one, one.source.line % 3)
        )
        decided = (
            timed
            | beam.WindowInto(beam.window.FixedWindows(1))
            | ScoreWindows(tiny_model)
            | Decide(tiny_model)
        )
        lines = decided | beam.Map(
            lambda one, window=beam.DoFn.WindowParam: (int(window.start), one.source.line)
        )
        expected = [(line % 3, line) for line in range(1, len(RECORDS) + 1)]
        assert_that(lines, equal_to(expected))


def windowed(number: int, n_windows: int) -> Windowed:
    page = Example(number, "who", ["word"], [False], ())
    ids = np.stack([np.arange(n_windows), np.full(n_windows, n_windows)], axis=1)
    return Windowed(page, {"window_ids": ids})


@given(st.lists(st.integers(1, 15)))
def test_parts_are_those_of_a_run_without_beam(sizes: list[int]) -> None:
    examples = [windowed(number, size) for number, size in enumerate(sizes)]
    expected = parts(examples, 10)
    step, window = _MakeParts(10), beam.window.GlobalWindow()
    step.start_bundle()
    found = [part for one in examples for part in step.process(one, window)]
    found += [last.value for last in step.finish_bundle()]
    assert found == [part.windowed for part in expected]
