"""The public Beam transforms in a pipeline of the user's own."""

import gzip
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

from nq.beam import MakeWindows, ReadQuestions
from nq.config import WindowConfig
from nq.formats import inputs
from nq.formats.tfrecord import raw_records
from nq.preprocess.features import Sampling
from nq.preprocess.prepared import Request, prepare
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.questions import Questions
from nq.records import Example
from tests.support.nq_records import simplified, write_lines
from tests.support.tiny_models import write_vocab

CONFIG = WindowConfig(max_seq_length=48, max_query_length=12, doc_stride=16)
IN_MEMORY = ["--runner=FnApiRunner"]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for n, name in enumerate("ab"):
        lines = [*(simplified(10 * n + i, words=20 + i) for i in range(6)), b"bad"]
        write_lines(tmp_path / f"{name}.jsonl", lines)
    write_vocab(tmp_path / "vocab.txt")
    return [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]


@pytest.mark.slow
@pytest.mark.parametrize("training", [None, Sampling(0.5, 7)])
def test_a_pipeline_of_the_user(
    files: list[str], tmp_path: Path, training: Sampling | None
) -> None:
    vocab = tmp_path / "vocab.txt"
    expected = prepare(
        Request(Questions(tuple(files)), load_tokenizer(vocab), CONFIG, training), tmp_path / "out"
    )
    records = [record for shard in expected.shards for record in raw_records(shard)]
    pipeline = beam.Pipeline(options=PipelineOptions(IN_MEMORY))
    made = pipeline | ReadQuestions(files) | MakeWindows(vocab, CONFIG, training)
    lines = made.dead_letters | beam.Map(lambda letter: (letter.source.path, letter.source.line))
    assert_that(made.windows, equal_to(records), "windows")
    assert_that(lines, equal_to([(path, 7) for path in files]), "dead letters")
    result = pipeline.run()
    result.wait_until_finish()
    counters = {c.key.metric.name: c.result for c in result.metrics().query()["counters"]}
    assert (counters["examples"], counters["dead_letters"]) == (12, 2)
    assert counters["windows"] == len(records)
    assert (counters["unread_blocks"], counters["truncated_pages"]) == (0, 0)


def test_questions_are_those_of_the_files(files: list[str]) -> None:
    expected = [
        (source, item.example_id if isinstance(item, Example) else item)
        for index, path in enumerate(files)
        for source, item in inputs.read_records(path, index)
    ]
    for limit, workers in ((None, 1), (9, 3)):
        with beam.Pipeline(options=PipelineOptions(IN_MEMORY)) as pipeline:
            questions = pipeline | ReadQuestions(files, limit, workers=workers)
            ids = questions | beam.MapTuple(
                lambda source, item: (source, getattr(item, "example_id", item))
            )
            assert_that(ids, equal_to(expected[:limit]))


@pytest.mark.parametrize("limit", [None, 1])
def test_a_damaged_file_fails(files: list[str], limit: int | None) -> None:
    data = bytearray(gzip.compress(Path(files[0]).read_bytes()))
    data[-8] ^= 4
    Path(files[0]).write_bytes(data)
    with (
        pytest.raises(Exception, match=f"{files[0]} is damaged"),
        beam.Pipeline(options=PipelineOptions(IN_MEMORY)) as pipeline,
    ):
        _ = pipeline | ReadQuestions(files, limit)
