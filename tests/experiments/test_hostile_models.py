"""Hostile model folders: some of them, with real commands."""

from __future__ import annotations

import json

import pytest

from experiments import hostile_models

pytestmark = pytest.mark.extended


def test_hostile_folders_end_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = [kind for kind in hostile_models.MUTATIONS if kind != "TensorFlow checkpoint"]
    argv = ["--folders", str(len(kinds)), "--commands", "ask", "convert", "--json"]
    assert hostile_models.main([*argv, "--seed", "5", "--limit-s", "120", "--kinds", *kinds]) == 0
    outcomes = json.loads(capsys.readouterr().out)["outcomes"]
    assert [outcome["kind"] for outcome in outcomes] == kinds
    assert sum(outcome["outcome"] == hostile_models.ONE_LINE for outcome in outcomes) >= 7
