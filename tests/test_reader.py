"""A page in memory is answered exactly as the whole line answers it from a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from nq.bundle import bundled_sample
from nq.formats import inputs
from nq.formats.pages import page_from_text, with_question
from nq.formats.predictions import encode_prediction
from nq.inference.profile import Profile
from nq.model.checkpoint import load_settings
from nq.reader import Answerer, answerer
from nq.records import Example
from nq.runs.job import PREDICTIONS, Job
from nq.runs.run import run

QUESTIONS = 3
PROFILE = Profile.parse("baseline")


@pytest.fixture(scope="module")
def loaded(tiny_model: Path) -> Iterator[Answerer]:
    own = load_settings(tiny_model)
    with answerer(tiny_model, PROFILE, own.windows, own.decision, batch_size=7) as found:
        yield found


def test_as_the_whole_line(loaded: Answerer, tiny_model: Path, tmp_path: Path) -> None:
    sample = str(bundled_sample())
    settings = (loaded.windows, loaded.decision)
    run(Job((sample,), tiny_model, PROFILE, *settings, 16, tmp_path, limit=QUESTIONS))
    written = orjson.loads((tmp_path / PREDICTIONS).read_bytes())["predictions"]
    examples = [item for _, item in inputs.read_records(sample, limit=QUESTIONS)]
    for example, expected in zip(examples, written, strict=True):
        assert isinstance(example, Example)
        found = encode_prediction(loaded.answer(example).prediction)
        for score in ("long_answer_score", "short_answers_score"):
            assert found.pop(score) == pytest.approx(expected.pop(score), abs=1e-4)
        assert found == expected


def test_alternatives_are_blocks_of_the_page_best_first(loaded: Answerer) -> None:
    page = page_from_text(
        "\n\n".join(["the lake is deep", "old lakes", "is the lake old", "a b c"])
    )
    example = with_question(page, "is the lake deep")
    for limit in (1, 3, 10):
        found = loaded.answer(example, limit).alternatives
        assert 1 <= len(found) <= limit
        assert {a.long for a in found} <= {c.span for c in example.candidates}
        assert len({a.long for a in found}) == len(found)
        likely = [a.long_probability for a in found]
        assert likely == sorted(likely, reverse=True)
        for alternative in found:
            assert 0 <= alternative.short_probability <= 1
            assert all(alternative.long.contains(short) for short in alternative.shorts)


def test_blocks_beyond_the_last_context_are_counted(loaded: Answerer) -> None:
    assert loaded.unread(page_from_text("one\n\ntwo").example) == 0
    many = page_from_text("\n\n".join(["the lake"] * 60)).example
    assert loaded.unread(many) == 60 - (loaded.windows.max_contexts - 1)
