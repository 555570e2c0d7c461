"""Kills and interrupts of real runs."""

from __future__ import annotations

import json

import pytest

from experiments import kills


@pytest.mark.slow
def test_a_killed_and_an_interrupted_run(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--kills", "1", "--interrupts", "1", "--profiles", "baseline", "--limit", "4"]
    assert kills.main([*argv, "--seed", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["problems"] == []
    assert [len(result[name]) for name in ("kills", "interrupts")] == [1, 1]


def test_the_tables_have_a_row_for_each_phase() -> None:
    some = [kills.Kill("baseline", "predict", 3, 5, 0), kills.Kill("baseline", "predict", 6, 5, 1)]
    assert kills.kill_table(some).splitlines()[2] == "| predict | 2 | 6 | 1 | 1 |"
    ended = [kills.Interrupt("baseline", "load", 1.25, 130, True, 0)]
    assert kills.interrupt_table(ended).splitlines()[2] == "| load | 1 | 1 | 1.2 | 0 |"
