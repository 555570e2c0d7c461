"""Tests the reader with a tiny model: the same answers as a run, and its alternatives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

import nq
from nq.formats.outputs import encode_prediction
from nq.runs.result import PREDICTIONS


@pytest.fixture(scope="module")
def reader(tiny_model: Path) -> Iterator[nq.Reader]:
    with nq.load(tiny_model, profile="baseline", batch_size=7) as reader:
        yield reader


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["baseline", "mixed+prune+rescore"])
def test_predictions_are_those_of_a_run(profile: str, tiny_model: Path, tmp_path: Path) -> None:
    files = [nq.bundled_sample()]
    result = nq.run(nq.Job(files, tiny_model, profile, output=tmp_path))
    written = orjson.loads((tmp_path / PREDICTIONS).read_bytes())["predictions"]
    with nq.load(tiny_model, profile=profile, batch_size=7) as reader:
        predictions = list(reader.predict(nq.read_examples(files)))
    assert len(predictions) == result.examples
    assert sum(prediction.answered for prediction in predictions) == result.answered
    for prediction, expected in zip(predictions, written, strict=True):
        encoded = encode_prediction(prediction)
        for score in ("long_answer_score", "short_answers_score"):
            assert encoded.pop(score) == pytest.approx(expected.pop(score), abs=1e-5)
        assert encoded == expected
    assert nq.evaluate(files, tmp_path / PREDICTIONS) == result.metrics


def test_alternatives_are_other_blocks_of_the_page_best_first(reader: nq.Reader) -> None:
    blocks = ["the lake is deep", "old lakes", "is the lake old", "a b c"]
    page = nq.page_from_text("\n\n".join(blocks))
    for top in (0, 1, 3, 10):
        answer = reader.ask("is the lake deep", page, top)
        others = answer.alternatives
        assert len(others) == min(top, len(blocks) - 1)
        assert answer.long in blocks
        assert {a.long for a in others} <= set(blocks) - {answer.long}
        assert len({a.long for a in others}) == len(others)
        probabilities = [a.long_probability or 0 for a in (answer, *others)]
        assert probabilities == sorted(probabilities, reverse=True)
        for alternative in others:
            assert 0 <= (alternative.short_probability or 0) <= 1
            long = alternative.long_span
            assert long and all(long.contains(short) for short in alternative.short_spans)


def test_blocks_beyond_the_last_context_are_counted(reader: nq.Reader) -> None:
    assert reader.unread_blocks(nq.page_from_text("one\n\ntwo")) == 0
    many = nq.page_from_text("\n\n".join(["the lake"] * 60))
    assert reader.unread_blocks(many) == 60 - (reader.windows.max_contexts - 1)


@pytest.mark.slow
def test_examples_are_read_as_predictions_are_taken(reader: nq.Reader) -> None:
    """Memory does not grow with the input."""
    taken = 0

    def examples() -> Iterator[nq.Example]:
        nonlocal taken
        for example in nq.read_examples(nq.bundled_sample()):
            taken += 1
            yield example

    predictions = reader.predict(examples())
    assert taken == 0
    next(predictions)
    assert 0 < taken < 40
    assert len(list(predictions)) == 39
    assert taken == 40
