"""Some of the attacks, with real commands, files and processes."""

import json
import re
from typing import Any

import pytest

from experiments.attacks import __main__ as attacks
from experiments.attacks import fuzz

pytestmark = pytest.mark.extended


def attack(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    """Returns the rows of the command."""
    assert attacks.main([*argv, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_every_mutation_has_an_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    rows = attack(capsys, "fuzz", "--mutations", "300")
    assert [row["target"] for row in rows] == list(fuzz.DIALECTS)
    for row in rows:
        mutations, refused, records, good, skipped = map(int, re.findall(r"\d+", row["text"]))
        assert (mutations, records) == (300, good + skipped)
        assert min(good, skipped + refused) > 30


def test_a_killed_and_an_interrupted_run(capsys: pytest.CaptureFixture[str]) -> None:
    rows = attack(capsys, "kills", "--kills", "1", "--interrupts", "1", "--only", "baseline")
    assert {row["attack"] for row in rows} == {"SIGKILL", "none, after kills", "SIGINT"}
