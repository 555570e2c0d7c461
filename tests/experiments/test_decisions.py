"""Tests the comparison of decision rules: each has the metrics of a run of its own."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import nq
from experiments import decisions
from nq.config import DECISION_RULES
from nq.model.folder import load_settings

pytestmark = pytest.mark.extended

FILES = [nq.bundled_sample()]


def compare(
    capsys: pytest.CaptureFixture[str], model: Path, *options: str
) -> list[dict[str, float]]:
    arguments = ["--data", *map(str, FILES), "--model", str(model), "--json", *options]
    assert decisions.main(arguments) == 0
    rows: list[dict[str, float]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_each_rule_has_the_metrics_of_its_own_run(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = compare(capsys, tiny_model, "--half", "all")
    assert decisions.table({"rows": rows}).count("| `") == len(rows) == len(DECISION_RULES)
    for row in rows:
        own = load_settings(tiny_model).decision
        decision = replace(own, rule=str(row.pop("decision")))
        result = nq.run(nq.Job(FILES, nq.find_model(tiny_model, decision=decision), root=tmp_path))
        assert row == {name: result.metrics[name] for name in row}
