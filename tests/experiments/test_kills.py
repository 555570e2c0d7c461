"""Kills and interrupts of real runs."""

from __future__ import annotations

import json

import pytest

from experiments import kills

pytestmark = pytest.mark.extended


def test_a_killed_and_an_interrupted_run(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--kills", "1", "--interrupts", "1", "--profiles", "baseline", "--limit", "4"]
    assert kills.main([*argv, "--seed", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["problems"] == []
    assert [len(result[name]) for name in ("kills", "interrupts")] == [1, 1]
