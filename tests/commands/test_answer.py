"""Tests runs and ``nq answer``, with the bundled model and with a tiny one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from nq.bundle import bundled_sample
from nq.config import DecisionConfig, WindowConfig
from nq.evaluation import labels
from nq.model.spec import find_model
from nq.runs.config import Compute
from nq.runs.job import Job
from nq.runs.result import Result
from nq.runs.run import run
from tests import nq_records
from tests.conftest import Commands
from tests.jobs import predictions

QUESTIONS = 12
MIXED_DRIFT, EXACT_DRIFT = 0.2, 5e-5
"""Differences of a probability that bfloat16 and float32 may cause, twice the measured ones or
more."""


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Result]:
    model = find_model(windows=WindowConfig(max_seq_length=256), decision=DecisionConfig())
    job = Job(
        [bundled_sample()],
        model,
        "baseline",
        root=tmp_path_factory.mktemp("runs"),
        limit=QUESTIONS,
        compute=Compute(batch_size=8),
    )
    return job, run(job, table_rows=QUESTIONS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "profile",
    [
        "mixed",
        "grappler+frozen+buckets",
        pytest.param("xla+grappler", marks=pytest.mark.extended),
    ],
)
def test_every_profile_gives_the_answers_of_baseline(
    profile: str, baseline: tuple[Job, Result]
) -> None:
    job, expected_result = baseline
    result = run(replace(job, profile=profile))
    mixed = "mixed" in profile
    assert result.precision == ("bfloat16" if mixed else "float32")
    assert result.examples == QUESTIONS
    drift, changed = 0.0, 0
    pairs = zip(predictions(result.folder), predictions(expected_result.folder), strict=True)
    for mine, expected in pairs:
        drift = max(drift, abs(mine["long_answer_score"] - expected["long_answer_score"]))
        spans = ("long_answer", "short_answers", "yes_no_answer")
        changed += any(mine[name] != expected[name] for name in spans)
    assert drift < (MIXED_DRIFT if mixed else EXACT_DRIFT)
    assert (drift > EXACT_DRIFT) == mixed  # without a drift bfloat16 would not be in force
    assert changed <= (1 if mixed else 0)


def test_strict_makes_bad_records_an_error_behind_the_result(
    commands: Commands, tiny_model: Path, tmp_path: Path
) -> None:
    lines = [nq_records.simplified(1), b"{", nq_records.simplified(2), b"\xff\xfe"]
    data = nq_records.write_lines(tmp_path / "mixed.jsonl", lines)
    options = ["--model", tiny_model, "--output", tmp_path / "out", "--no-track", "--json"]
    (line,) = commands.out("answer", "--data", data, *options, "--strict", code=1).splitlines()
    result = json.loads(line)
    assert "2 bad records" in commands.err.splitlines()[-1]
    assert (result["examples"], result["dead_letters"]) == (2, 2)
    assert set(labels.read_predictions(tmp_path / "out" / "predictions.json")) == {1, 2}
    letters = (tmp_path / "out" / "skipped.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(letter)["line"] for letter in letters] == [2, 4]


def test_a_damaged_model_leaves_no_run_behind(
    commands: Commands, tiny_model: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    options = ["--model", model, "--limit", 3, "--no-track", "--root", tmp_path / "runs"]
    assert "is damaged" in commands.error("answer", *options)
    assert not [path for path in tmp_path.glob("runs/*") if not path.name.startswith("windows-")]


@pytest.mark.slow
def test_a_runner_of_beam(
    commands: Commands, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table and the scores are those of a run without one; options of Beam are passed on."""
    monkeypatch.chdir(tmp_path)
    common = ["answer", "--model", tiny_model, "--limit", 5, "--show", 2, "--no-track"]
    beam = ["--output", "beam", "--runner=FnApiRunner", "--job_name", "mine"]
    others, lines = (
        commands.out(*common, *options).splitlines() for options in (["--output", "local"], beam)
    )
    assert lines[:8] == others[:8]
    assert "answered by FnApiRunner: job mine" in lines
    summary = commands.json(*common, "--runner", "FnApiRunner", "--against", "local")
    assert summary["parity"]["changed"] == 0
    assert summary["beam"]["runner"] == "FnApiRunner"
    assert summary["beam"]["metrics"]["records"] == 5
    assert Path(summary["output"]).parent == Path("runs")
