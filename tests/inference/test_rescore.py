"""Close calls are decided again: where all are close, as if everything had been in float32."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from nq.bundle import bundled_sample
from nq.errors import Error
from nq.formats import inputs
from nq.formats.predictions import encode_prediction
from nq.inference import rescore
from nq.inference.profile import Profile
from nq.model.checkpoint import load_settings
from nq.reader import answerer
from nq.records import Example
from nq.runs.job import PREDICTIONS, Job, Report
from nq.runs.run import run

QUESTIONS = 6


def job(model: Path, root: Path, profile: str) -> Job:
    own = load_settings(model)
    return Job(
        (str(bundled_sample()),),
        model,
        Profile.parse(profile),
        own.windows,
        own.decision,
        16,
        root=root,
        limit=QUESTIONS,
    )


def predictions(report: Report) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = orjson.loads((report.output / PREDICTIONS).read_bytes())[
        "predictions"
    ]
    return found


def assert_same(mine: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    for one, other in zip(mine, theirs, strict=True):
        for score in ("long_answer_score", "short_answers_score"):
            assert one.pop(score) == pytest.approx(other.pop(score), abs=1e-5)
        assert one == other


@pytest.fixture
def all_are_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rescore.CLOSE, "mixed", math.inf)


@pytest.mark.usefixtures("all_are_close")
def test_where_all_are_close_it_is_float32(tiny_model: Path, tmp_path: Path) -> None:
    exact = run(job(tiny_model, tmp_path, "baseline"))
    found = run(job(tiny_model, tmp_path, "mixed+refine+recheck"))
    assert (found.rechecked, exact.rechecked) == (QUESTIONS, 0)
    assert found.time["recheck_s"] > 0
    assert_same(predictions(found), predictions(exact))


def test_where_none_is_close_nothing_is_done_again(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rescore.CLOSE, "mixed", 0.0)
    plain = run(job(tiny_model, tmp_path, "mixed"))
    found = run(job(tiny_model, tmp_path, "mixed+recheck"))
    assert found.rechecked == 0
    assert predictions(found) == predictions(plain)


@pytest.mark.usefixtures("all_are_close")
def test_what_was_done_before_an_interruption_is_kept(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = job(tiny_model, tmp_path, "mixed+recheck")
    undisturbed = predictions(run(asked))
    real, calls = rescore.Recheck.scores, list[int]()

    def interrupted(self: rescore.Recheck, example: Example, found: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(self, example, found)

    monkeypatch.setattr(rescore.Recheck, "scores", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(asked)
    again = run(asked)
    assert len(calls) == 4 + QUESTIONS - 3 and again.rechecked == QUESTIONS
    assert predictions(again) == undisturbed


@pytest.mark.usefixtures("all_are_close")
def test_one_page_in_memory_is_decided_again_too(tiny_model: Path, tmp_path: Path) -> None:
    asked = job(tiny_model, tmp_path, "mixed+recheck")
    expected = predictions(run(asked))
    settings = (asked.profile, asked.windows, asked.decision)
    examples = [item for _, item in inputs.read_records(asked.files[0], limit=QUESTIONS)]
    with answerer(tiny_model, *settings) as loaded:
        found = [loaded.answer(e).prediction for e in examples if isinstance(e, Example)]
    assert_same([encode_prediction(prediction) for prediction in found], expected)


def test_the_originals_do_not_tell_close_calls(tiny_model: Path, tmp_path: Path) -> None:
    asked = job(tiny_model, tmp_path, "mixed+recheck")
    other = replace(asked, decision=replace(asked.decision, rule="kisialiou"))
    with pytest.raises(Error, match="kisialiou does not tell close calls: leave recheck out"):
        run(other)
