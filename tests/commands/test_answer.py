"""Tests runs and ``nq answer``, with the bundled model and with a tiny one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nq.bundle import bundled_sample
from nq.commands.main import console
from nq.config import Compute, DecisionConfig, WindowConfig
from nq.evaluation import labels
from nq.model.spec import find_model
from nq.runs.job import Job
from nq.runs.result import Result
from nq.runs.run import run
from tests import nq_records
from tests.terminal_output import without_progress

ROOT = Path(__file__).parents[2]
QUESTIONS = 12
MIXED_DRIFT, EXACT_DRIFT = 0.2, 5e-5
"""Differences of a probability that bfloat16 and float32 may cause, twice the measured ones or
more."""


Answer = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Answer:
    """Runs the command in this process; its working folder is ``tmp_path``."""

    def run_main(*arguments: object) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(tmp_path)
        argv = ["answer", *map(str, arguments), "--no-track"]
        code = console(argv)
        return subprocess.CompletedProcess(argv, code, *capsys.readouterr())

    return run_main


def predictions(result: Result) -> list[dict[str, Any]]:
    values: dict[str, Any] = json.loads((result.folder / "predictions.json").read_bytes())
    return list(values["predictions"])


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
    for mine, expected in zip(predictions(result), predictions(expected_result), strict=True):
        drift = max(drift, abs(mine["long_answer_score"] - expected["long_answer_score"]))
        spans = ("long_answer", "short_answers", "yes_no_answer")
        changed += any(mine[name] != expected[name] for name in spans)
    assert drift < (MIXED_DRIFT if mixed else EXACT_DRIFT)
    assert (drift > EXACT_DRIFT) == mixed  # without a drift bfloat16 would not be in force
    assert changed <= (1 if mixed else 0)


@pytest.mark.slow
def test_good_and_broken_lines_in_a_process(tiny_model: Path, tmp_path: Path) -> None:
    """stdout is one JSON object; ``--strict`` makes bad records an error behind it."""
    wrong = {**nq_records.simplified(), "long_answer_candidates": [{"start_token": 9}]}
    nameless = nq_records.changed(nq_records.simplified(), "question_text", ...)
    broken = (b"{", b"\xff\xfe", b"[]", nq_records.to_line(wrong), nq_records.to_line(nameless))
    lines: list[bytes] = []
    for i in range(200):
        lines.append(nq_records.to_line(nq_records.simplified(i, words=20)).strip())
        if i % 5 == 0:
            lines.append(broken[i // 5 % len(broken)].strip())
    (tmp_path / "mixed.jsonl").write_bytes(b"\n".join(lines))
    command = [sys.executable, "-m", "nq", "answer", "--data", "mixed.jsonl", "--strict", "--json"]
    command += ["--model", str(tiny_model), "--output", "out", "--batch-size", "64"]
    done = subprocess.run(
        [*command, "--profile", "grappler+buckets"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    error = "nq: error: 40 bad records, see out/skipped.jsonl\n"
    assert (done.returncode, without_progress(done.stderr)) == (1, error)
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert (result["examples"], result["dead_letters"]) == (200, 40)
    assert result["run_id"]
    answers = labels.read_predictions(tmp_path / "out" / "predictions.json")
    assert set(answers) == set(range(200))
    letters = (tmp_path / "out" / "skipped.jsonl").read_text(encoding="utf-8").splitlines()
    assert len({json.loads(letter)["line"] for letter in letters}) == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "nowhere.jsonl"), "no file matches nowhere.jsonl"),
        (("--model", "nowhere"), "nowhere"),
        (("--runner", "Flonk"), "Unexpected pipeline runner: Flonk. Valid values are"),
        (("--runner", "FnApiRunner", "--data", "-"), "standard input is no file"),
    ],
)
def test_an_error_that_a_user_can_cause_is_one_line(
    arguments: tuple[str, ...], message: str, answer: Answer
) -> None:
    done = answer(*arguments)
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", lambda data: b"{", "config.json is not JSON"),
        ("model.safetensors", lambda data: data[:-100], "model.safetensors is damaged"),
        ("config.json", lambda data: data.replace(b'size": 8', b'size": 16'), "has shape"),
    ],
)
def test_a_damaged_model_leaves_no_run_behind(
    answer: Answer,
    tiny_model: Path,
    tmp_path: Path,
    file: str,
    change: Callable[[bytes], bytes],
    message: str,
) -> None:
    model = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    (model / file).write_bytes(change((model / file).read_bytes()))
    done = answer("--model", model, "--limit", 3)
    assert done.returncode == 1
    assert message in done.stderr and len(done.stderr.splitlines()) == 1
    assert not [path for path in tmp_path.glob("runs/*") if not path.name.startswith("windows-")]


@pytest.mark.slow
def test_a_runner_of_beam(answer: Answer, tiny_model: Path, tmp_path: Path) -> None:
    """The table and the scores are those of a run without one; options of Beam are passed on."""
    common = ["--model", tiny_model, "--limit", 5, "--show", 2]
    expected = answer(*common, "--output", "local")
    found = answer(*common, "--output", "beam", "--runner=FnApiRunner", "--job_name", "mine")
    assert (found.returncode, expected.returncode) == (0, 0), found.stderr
    lines, others = (done.stdout.splitlines() for done in (found, expected))
    assert lines[:8] == others[:8]
    assert "answered by FnApiRunner: job mine" in lines
    parity = answer(*common, "--runner", "FnApiRunner", "--against", "local", "--json")
    summary = json.loads(parity.stdout)
    assert summary["parity"]["changed"] == 0
    assert summary["beam"]["runner"] == "FnApiRunner"
    assert summary["beam"]["metrics"]["records"] == 5
    assert Path(summary["output"]).parent == Path("runs")
