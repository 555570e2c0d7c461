"""Some of the attacks, with real commands, files and processes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from experiments.attacks import __main__ as attacks
from experiments.attacks import fuzz, models
from experiments.attacks.frame import DONE, REFUSED, SAME, SKIPPED

pytestmark = pytest.mark.extended


def attack(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    """Returns the rows of the command."""
    assert attacks.main([*argv, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_a_hostile_record_is_skipped_and_good_ones_are_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ["good records only", "million levels of JSON"]
    rows = attack(capsys, "records", "--only", *names)
    assert {row["attack"]: row["verdict"] for row in rows} == dict(
        zip(names, [DONE, SKIPPED], strict=True)
    )


def test_hostile_folders_end_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    count = str(len(models.CHANGES))
    rows = attack(capsys, "models", "--models", count, "--commands", "ask", "convert")
    assert [row["attack"] for row in rows] == list(models.CHANGES)
    assert sum(row["verdict"] == REFUSED for row in rows) >= 6


@pytest.mark.parametrize(
    ("scenario", "only", "verdict"),
    [
        ("finished", ["*/windows-*.tfrecord flipped", "*/examples-*.tfrecord emptied"], SAME),
        (
            "interrupted",
            ["*/unfinished/*-000000001.npz flipped", "*/unfinished/request.json emptied"],
            SAME,
        ),
        ("training", ["*/progress.json flipped", "*/step-*.npz cut"], SAME),
        ("teacher", ["*/part-000000.npz flipped", "*/request.json cut"], SAME),
        ("weights", ["*/model.safetensors flipped"], REFUSED),
    ],
)
def test_damage_is_made_good_or_refused(
    scenario: str,
    only: list[str],
    verdict: str,
    tiny_model: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--model", str(tiny_model), "--limit", "2", "--only", *only]
    rows = attack(capsys, scenario, *options)
    assert len(rows) >= len(only)
    for row in rows:
        assert row["verdict"] == verdict and Path(row["target"]).name in row["text"], row


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
