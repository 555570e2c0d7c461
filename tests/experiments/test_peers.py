"""Peers: a real tiny run."""

import json
from pathlib import Path

import pytest

from experiments.planning.models import window_gflop
from tests.support.child_processes import python
from tests.support.nq_records import simplified, write_lines
from tests.support.terminal_output import without_progress
from tests.support.tiny_models import SHAPE

pytestmark = pytest.mark.extended


def test_a_real_run_of_our_engines(tmp_path: Path, tiny_model: Path) -> None:
    """The logits of all positions are those of the baseline, but for rounding."""
    pages = write_lines(tmp_path / "pages.jsonl", [simplified(n, words=200) for n in (1, 2)])
    process = python(
        *("-m", "experiments.peers"),
        *("--data", pages, "--model", tiny_model, "--json"),
        *("--batch-size", 2, "--windows", 3, "--rounds", 2),
        *("--peers", "nq/mixed+grappler+frozen+buckets"),
    )
    assert (process.returncode, without_progress(process.stderr)) == (0, "")
    result = json.loads(process.stdout)
    assert (result["max_seq_length"], result["batch_size"], result["windows"]) == (32, 2, 128)
    assert result["gflop_per_window"] == pytest.approx(window_gflop(SHAPE, 32))
    baseline, mixed = result["peers"]
    assert (baseline["name"], baseline["precision"]) == ("nq/baseline", "float32")
    assert (mixed["precision"], mixed["against_best_peer"]) == ("bfloat16", None)
    assert (baseline["drift"], baseline["against_baseline"]) == (0.0, 1.0)
    assert 0 < mixed["drift"] < 0.5
    assert all(len(row["rounds"]) == 2 and row["windows_per_s"] > 0 for row in result["peers"])
    assert (result["skipped"], result["failed"]) == ({}, {})
