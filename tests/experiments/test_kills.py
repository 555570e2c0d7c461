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
    ended = [kills.Interrupt("baseline", "load", 1.25, 130, ("nq: interrupted",), 0)]
    assert kills.interrupt_table(ended).splitlines()[2] == "| load | 1 | 1 | 1.2 | 0 |"


@pytest.mark.parametrize(
    ("phase", "seconds", "code", "lines", "fine"),
    [
        ("load", 1.0, 130, ("nq: interrupted",), True),
        ("load", 11.0, 130, ("nq: interrupted",), False),
        ("load", 1.0, 0, (), False),
        ("load", 1.0, 130, ("Traceback",), False),
        ("finished", 1.0, 0, (), True),
        ("finished", 1.0, -2, (), True),
        ("end", 1.0, -2, (), False),
        ("finished", 1.0, 0, ("Traceback",), False),
    ],
)
def test_an_interrupt_ends_in_time_with_one_line(
    phase: str, seconds: float, code: int, lines: tuple[str, ...], fine: bool
) -> None:
    assert kills.Interrupt("baseline", phase, seconds, code, lines, 0).fine is fine
