"""Hostile model folders: some of them, with real commands."""

from __future__ import annotations

import json

import pytest

from experiments import hostile_models


@pytest.mark.slow
def test_hostile_folders_end_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = [kind for kind in hostile_models.MUTATIONS if kind != "TensorFlow checkpoint"]
    argv = ["--folders", str(len(kinds)), "--commands", "ask", "convert", "--json"]
    assert hostile_models.main([*argv, "--seed", "5", "--limit-s", "120", "--kinds", *kinds]) == 0
    outcomes = json.loads(capsys.readouterr().out)["outcomes"]
    assert [outcome["kind"] for outcome in outcomes] == kinds
    assert sum(outcome["outcome"] == hostile_models.ONE_LINE for outcome in outcomes) >= 7


def test_outcomes() -> None:
    judge = hostile_models.judge
    assert judge(0, []) == hostile_models.ACCEPTED
    assert judge(1, ["nq: a remark", "nq: error: b"]) == hostile_models.ONE_LINE
    assert judge(1, ["nq: error: a", "b"]) == "exit code 1, 2 lines"
    assert judge(1, ["Traceback (most recent call last)", "nq: error: b"]) == "traceback"
    assert judge(-9, ["timeout"]) == "timeout"
    assert judge(-11, []) == "exit code -11, 0 lines"
