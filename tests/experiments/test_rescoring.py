"""Tests that the limits of ``rescore`` are those that were measured."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import nq
from experiments import rescoring, tables
from nq.inference.profile import Profile
from nq.inference.rescore import CLOSE, compute_type
from nq.model.folder import copy_model, load_settings, save_settings


def test_the_limits_are_those_of_the_committed_result() -> None:
    path = tables.ROOT / "experiments" / "results" / "rescoring_dev.json"
    rows = json.loads(path.read_bytes())["result"]["rows"]
    types = [compute_type(Profile.parse(row["profile"]), "CPU") for row in rows]
    assert {*types} == CLOSE.keys()
    for row, type_ in zip(rows, types, strict=True):
        assert row["limit"] == CLOSE[type_] > 1.25 * row["largest_margin"]
        assert row["changed_with_rescore"] == 0


@pytest.mark.extended
def test_a_run_of_another_decision_is_not_taken(tiny_model: Path, tmp_path: Path) -> None:
    model, output = copy_model(tiny_model, tmp_path / "model"), tmp_path / "runs"
    arguments = ["--data", str(nq.bundled_sample()), "--model", str(model), "--limit", "2"]
    arguments += ["--profiles", "mixed", "--output", str(output), "--json"]
    assert rescoring.main(arguments) == 0
    first = {path: path.stat().st_mtime_ns for path in output.glob("*/job.json")}
    assert len(first) == 2  # of mixed and of baseline, which is its exact profile
    settings = load_settings(model)
    decision = replace(settings.decision, max_answer_length=5)
    save_settings(model, replace(settings, decision=decision))
    assert rescoring.main(arguments) == rescoring.main(arguments) == 0
    after = {path: path.stat().st_mtime_ns for path in output.glob("*/job.json")}
    assert first.items() < after.items()
    assert len(after) == 4
