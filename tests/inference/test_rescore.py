"""Tests that close decisions are computed again, and become those of float32."""

import math
from pathlib import Path

import pytest

from nq.bundle import bundled_sample
from nq.inference import rescore
from nq.inference.profile import TENSORFLOW
from nq.runs.config import Compute
from nq.runs.job import Job
from nq.runs.run import run
from tests.support.jobs import predictions

QUESTIONS = 6


@pytest.mark.slow
def test_what_is_rescored_has_the_predictions_of_float32_also_after_an_interruption(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def job(profile: str, batch_size: int = 16) -> Job:
        return Job(
            *([bundled_sample()], tiny_model, profile),
            compute=Compute(batch_size=batch_size),
            output=tmp_path / profile,
            limit=QUESTIONS,
        )

    monkeypatch.setitem(rescore.CLOSE, (TENSORFLOW, "bfloat16"), math.inf)
    exact = run(job("baseline"))
    assert exact.totals.rescored == exact.measured.time["rescore_s"] == 0
    completed: list[int] = []

    def interrupt(windows: int, total: int) -> None:
        completed.append(windows)
        if sum(completed) > total * 2 // 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(job("mixed+rescore", 1), progress=interrupt)
    resumed = run(job("mixed+rescore", 1))
    totals = resumed.totals
    assert 0 < totals.resumed_windows < totals.windows
    assert totals.counters.computed_windows == totals.windows - totals.resumed_windows
    assert resumed.totals.rescored == QUESTIONS and resumed.measured.time["rescore_s"] > 0
    expected = predictions(exact.folder)
    assert len(expected) == QUESTIONS
    for prediction, other in zip(predictions(resumed.folder), expected, strict=True):
        for name, value in other.items():  # scores are equal up to the rounding of float32
            close = name.endswith("_score")
            assert prediction[name] == (pytest.approx(value, abs=1e-5) if close else value)
