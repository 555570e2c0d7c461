"""Study 3: rows, verdicts by hand, folders that are made once, real tiny models and runs."""

import json
from pathlib import Path

import pytest

from experiments.compression import __main__ as command
from experiments.compression import measure
from experiments.compression.models import STATES
from experiments.compression.report import BASELINE, BFLOAT16, INT8
from tests.experiments import light_units
from tests.experiments.conftest import RunCommand

pytestmark = pytest.mark.extended


def test_a_study_goes_on_with_pruning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_command: RunCommand
) -> None:
    """The speeds are not those of models; the first command prunes nothing."""
    monkeypatch.setattr(measure, "load", light_units.compression)
    options = ["--quick", "--rounds", 3, "--no-track", "--output", tmp_path]
    first = run_command(command.main, *options, "--prune")["rows"]
    rows = run_command(command.main, *options)["rows"]
    assert rows[: len(first)] == first
    pruned = [one for one in rows if one["prune"] and one["profile"] == BASELINE]
    assert [one["state"] for one in pruned] == list(STATES)
    assert len({json.dumps(one["seconds"]) for one in pruned}) == 1
    assert all(one["gflop"] < rows[0]["gflop"] for one in pruned)
    assert {one["profile"] for one in rows[-2:]} == {INT8, BFLOAT16}
    assert set(rows[-1]["reference_seconds"]) == {BASELINE, BFLOAT16}
