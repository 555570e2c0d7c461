"""Tests the comparison of two runs: equal runs pass, a broken profile does not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nq.inference.batches import Shape
from nq.inference.engine import Step
from nq.inference.engines import tensorflow
from nq.inference.profile import OPTIMIZATIONS, Optimization
from nq.inference.scorer import Rows
from tests.conftest import Commands

LIMIT = 6
THRESHOLDS = ("--set", "long_threshold=-9,short_threshold=-9")


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


@pytest.mark.slow
def test_a_profile_that_keeps_the_logits_changes_nothing_and_a_broken_one_is_seen(
    broken_profile: str, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    first = tmp_path / "first"
    common = ["answer", "--model", tiny_model, "--limit", LIMIT, "--no-track", "--keep-scores"]
    common += [*THRESHOLDS, "--output"]
    commands.out(*common, first, "--profile", "baseline")
    against = ["--against", first, "--profile"]
    parity = commands.json(*common, tmp_path / "equal", *against, "grappler")["parity"]
    assert parity["against"] == f"baseline in {first}"
    assert (parity["answers"], parity["changed"], parity["changed_share"]) == (LIMIT, 0, 0)
    assert 0 <= parity["mean_drift"] <= parity["max_drift"] < 1e-4
    assert set(parity["f1"].values()) == {0.0}
    parity = commands.json(*common, tmp_path / "other", *against, broken_profile)["parity"]
    assert parity["changed"] > 0 and parity["max_drift"] > 5
