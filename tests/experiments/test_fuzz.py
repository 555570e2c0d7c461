"""Tests the fuzzer with few mutations, and that it notices errors and lost records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from experiments.fuzz import __main__ as fuzz
from nq.formats import decoding


@pytest.mark.slow
def test_every_mutation_has_an_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--mutations", "300", "--seed", "20", "--json"]) == 0
    tallies = json.loads(capsys.readouterr().out)["dialects"]
    assert [tally["dialect"] for tally in tallies] == list(fuzz.DIALECTS)
    for tally in tallies:
        assert tally["mutations"] == 300
        outcomes = tally["good"] + tally["dead_letters"]
        assert tally["records"] == outcomes + tally["refused"] * (tally["dialect"] in fuzz.PAGES)
        assert min(tally["good"], tally["dead_letters"] + tally["refused"]) > 30


def test_equal_seeds_give_equal_mutations() -> None:
    tallies = [fuzz.check_dialect("NQ v1.0", 20, seed) for seed in (1, 1, 2)]
    assert tallies[0] == tallies[1] != tallies[2]


def test_errors_and_lost_records_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--mutations", "20", "--dialects", "simplified train"]

    def without_the_first(path: str) -> Iterator[Any]:
        records = read_records(path)
        next(records)
        return records

    read_records = decoding.read_records
    monkeypatch.setattr(decoding, "read_records", without_the_first)
    assert fuzz.main(command) == 1
    assert "nq: error: 0 errors, 1 records without an outcome" in capsys.readouterr().err

    def failing(*arguments: Any) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(decoding, "read_records", read_records)
    monkeypatch.setattr(fuzz, "encode_prediction", failing)
    assert fuzz.main(command) == 1
    printed = capsys.readouterr().err
    assert "line 21: KeyError: 'a bug'" in printed
    assert "errors, 0 records without an outcome" in printed
