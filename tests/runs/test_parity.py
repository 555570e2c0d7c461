"""Tests the comparison of two runs: equal runs pass, a broken profile does not."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nq.commands.main import console
from nq.inference.batches import Shape
from nq.inference.engine import Step
from nq.inference.engines import tensorflow
from nq.inference.profile import OPTIMIZATIONS, Optimization
from nq.inference.scorer import Rows

LIMIT = 6


class BrokenEngine(tensorflow.Engine):
    """Returns the worst start of each window as the best, and the type logits reversed."""

    def compiled(self, shape: Shape) -> Step:
        step = super().compiled(shape)

        def broken(rows: Rows) -> Sequence[Any]:
            doc, pos, logit, *others, types = step(rows)
            return [doc[:, ::-1], pos[:, ::-1], logit + 7, *others, 5 * types[:, ::-1]]

        return broken


@pytest.fixture
def broken_profile(monkeypatch: pytest.MonkeyPatch) -> str:
    module = ModuleType("nq.inference.engines.broken")
    module.Engine = BrokenEngine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(
        OPTIMIZATIONS,
        "broken",
        Optimization("returns wrong logits", {"engine": "broken"}),
    )
    return "broken"


def run(folder: Path, model: Path, *options: object) -> int:
    folders = ["--model", str(model), "--root", str(folder), "--limit", str(LIMIT)]
    return console(["answer", *folders, "--no-track", "--json", *map(str, options)])


@pytest.mark.slow
def test_equal_runs_differ_in_nothing(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, tiny_model, "--profile", "grappler", "--tolerance", 0) == 0
    parity = json.loads(capsys.readouterr().out)["parity"]
    assert parity["against"] == "baseline"
    assert (parity["answers"], parity["changed"], parity["changed_share"]) == (LIMIT, 0, 0)
    assert 0 <= parity["mean_drift"] <= parity["max_drift"] < 1e-4
    assert set(parity["f1"].values()) == {0.0}


@pytest.mark.slow
def test_a_broken_profile_is_beyond_the_tolerance(
    broken_profile: str, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    thresholds = ("--long-threshold", "-9", "--short-threshold", "-9")
    code = run(tmp_path, tiny_model, "--profile", broken_profile, "--tolerance", 0.1, *thresholds)
    output = capsys.readouterr()
    assert code == 1
    assert json.loads(output.out)["parity"]["max_drift"] > 5
    assert "nq: error: beyond the tolerance of 0.1: against baseline: " in output.err
    assert "Traceback" not in output.err


@pytest.mark.slow
def test_the_other_run_is_computed_once(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, tiny_model, "--profile", "grappler", "--against", "baseline") == 0
    (baseline,) = tmp_path.glob("baseline-*")
    changed_ns = (baseline / "predictions.json").stat().st_mtime_ns
    assert run(tmp_path, tiny_model, "--profile", "buckets", "--against", "baseline") == 0
    assert (baseline / "predictions.json").stat().st_mtime_ns == changed_ns
    assert len(list(tmp_path.glob("windows-*"))) == 1
