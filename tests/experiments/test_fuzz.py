"""Tests the fuzzer with few mutations, and that it notices errors and lost records."""

from __future__ import annotations

import json

import pytest

from experiments.fuzz import __main__ as fuzz

pytestmark = pytest.mark.extended


def test_every_mutation_has_an_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--mutations", "300", "--seed", "20", "--json"]) == 0
    tallies = json.loads(capsys.readouterr().out)["dialects"]
    assert [tally["dialect"] for tally in tallies] == list(fuzz.DIALECTS)
    for tally in tallies:
        assert tally["mutations"] == 300
        outcomes = tally["good"] + tally["dead_letters"]
        assert tally["records"] == outcomes + tally["refused"] * (tally["dialect"] in fuzz.PAGES)
        assert min(tally["good"], tally["dead_letters"] + tally["refused"]) > 30
