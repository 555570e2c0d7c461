"""Some of the attacks, with real commands, files and processes."""

import re

import pytest

from experiments.attacks import __main__ as attacks
from experiments.attacks import fuzz
from tests.experiments.conftest import RunCommand

pytestmark = pytest.mark.extended


def test_every_mutation_has_an_outcome(run_command: RunCommand) -> None:
    rows = run_command(attacks.main, "fuzz", "--mutations", 300)["rows"]
    assert [row["target"] for row in rows] == list(fuzz.DIALECTS)
    for row in rows:
        mutations, refused, records, good, skipped = map(int, re.findall(r"\d+", row["text"]))
        assert (mutations, records) == (300, good + skipped)
        assert min(good, skipped + refused) > 30


def test_a_killed_and_an_interrupted_run(run_command: RunCommand) -> None:
    options = ["--kills", 1, "--interrupts", 1, "--only", "baseline"]
    rows = run_command(attacks.main, "kills", *options)["rows"]
    assert {row["attack"] for row in rows} == {"SIGKILL", "none, after kills", "SIGINT"}


def test_small_requests_are_answered_beside_hostile_clients(run_command: RunCommand) -> None:
    alone, beside = run_command(attacks.main, "overload", "--small", 5)["rows"]
    assert (alone["attack"], alone["is_right"], beside["is_right"]) == ("none", True, True)
    assert re.match(r"0 of 5 failed, p50 \d+\.\d+ s", beside["text"])
