"""Tests the measure of reading on pages whose best spans are known."""

import json
from pathlib import Path

import pytest

import nq
from experiments import reading

pytestmark = pytest.mark.extended


def test_the_command_prints_the_shares(
    tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", str(nq.bundled_sample()), "--model", str(tiny_model), "--half", "all"]
    assert reading.main([*options, "--limit", "6", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert 0 < result["short_questions"] <= result["long_questions"] <= 6
    assert 0 <= result["exact_match_in_gold_block"] <= result["f1_in_gold_block"] <= 1
    assert reading.main([*options, "--limit", "0"]) != 0
