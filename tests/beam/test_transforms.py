"""The public Beam transforms in a pipeline of the user's own, against functions without Beam."""

import gzip
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
from nq.config import WindowConfig
from nq.formats.tfrecord import raw_records
from nq.inference.scorer import parts
from nq.preprocess.features import Sampling
from nq.preprocess.prepared import Request, prepare
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.questions import Questions
from nq.records import Example, Windowed
from nq.runs.job import Job
from nq.runs.run import run
from tests.support.jobs import predictions
from tests.support.nq_records import simplified, write_lines

CONFIG = WindowConfig(max_seq_length=48, max_query_length=12, doc_stride=16)
IN_MEMORY = PipelineOptions(["--runner=FnApiRunner"])


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Two files, each of six questions and a bad line."""
    for n, name in enumerate("ab"):
        lines = [*(simplified(10 * n + i, words=20 + 7 * i) for i in range(6)), b"bad"]
        write_lines(tmp_path / f"{name}.jsonl", lines)
    return [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]


@pytest.mark.slow
@pytest.mark.parametrize("training", [None, Sampling(0.5, 7)])
def test_windows_are_those_of_nq_preprocess(
    files: list[str], tiny_vocab: Path, tmp_path: Path, training: Sampling | None
) -> None:
    request = Request(Questions(tuple(files)), load_tokenizer(tiny_vocab), CONFIG, training)
    expected = prepare(request, tmp_path / "out")
    records = [record for shard in expected.shards for record in raw_records(shard)]
    pipeline = beam.Pipeline(options=IN_MEMORY)
    made = pipeline | ReadQuestions(files) | MakeWindows(tiny_vocab, CONFIG, training)
    lines = made.dead_letters | beam.Map(lambda letter: (letter.source.path, letter.source.line))
    assert_that(made.windows, equal_to(records), "windows")
    assert_that(lines, equal_to([(path, 7) for path in files]), "dead letters")
    result = pipeline.run()
    result.wait_until_finish()
    counters = {c.key.metric.name: c.result for c in result.metrics().query()["counters"]}
    assert (counters["examples"], counters["dead_letters"]) == (12, 2)
    assert counters["windows"] == len(records)
    assert (counters["unread_blocks"], counters["truncated_pages"]) == (0, 0)


@pytest.mark.parametrize("limit", [None, 1])
def test_a_damaged_file_fails(files: list[str], limit: int | None) -> None:
    data = bytearray(gzip.compress(Path(files[0]).read_bytes()))
    data[-8] ^= 4
    Path(files[0]).write_bytes(data)
    with (
        pytest.raises(Exception, match=f"{files[0]} .*damaged"),
        beam.Pipeline(options=IN_MEMORY) as pipeline,
    ):
        _ = pipeline | ReadQuestions(files, limit)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny_model", "tiny_pair"])
def test_a_pipeline_of_the_user_gives_the_predictions_of_a_run(
    name: str, files: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    model: Path = request.getfixturevalue(name)
    expected = run(Job(files, model, output=tmp_path / "run", formats="nbest"))
    lines = (expected.folder / "nbest.jsonl").read_bytes().splitlines(keepends=True)
    with beam.Pipeline(options=IN_MEMORY) as pipeline:
        made = pipeline | ReadQuestions(files) | MakeWindows(model, output="examples")
        decided = made.windows | ScoreWindows(model) | Decide(model, "nbest")
        found = decided | "Predictions" >> beam.Map(lambda one: one.prediction)
        nbest = decided | "NBest" >> beam.Map(lambda one: one.answered.outputs["nbest"])
        letters = made.dead_letters | beam.Map(lambda letter: letter.source.line)
        assert_that(found, equal_to(predictions(expected.folder)), "predictions")
        assert_that(nbest, equal_to(lines), "n-best")
        assert_that(letters, equal_to([7, 7]), "dead letters")


@pytest.mark.slow
def test_windows_of_time_stay_apart(files: list[str], tiny_model: Path) -> None:
    """Examples in different windows of Beam are never in one part, and stay in their window."""
    with beam.Pipeline(options=IN_MEMORY) as pipeline:
        made = pipeline | ReadQuestions(files) | MakeWindows(tiny_model, output="examples")
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
        expected = [(line % 3, line) for line in range(1, 7)] * 2
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
