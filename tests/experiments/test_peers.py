"""Peers: peaks, the table, skipped and failed peers, a real tiny run."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.peers.models import all_logits
from experiments.planning.models import window_gflop
from tests.support.child_processes import python
from tests.support.nq_records import simplified, write_lines
from tests.support.terminal_output import without_progress
from tests.support.tiny_models import SHAPE

pytestmark = pytest.mark.extended


def test_logits_are_restored_to_the_order_of_positions() -> None:
    logits = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
    order = np.argsort(-logits[:, :, 1:], axis=2) + 1
    order = np.concatenate([order, np.zeros((2, 3, 1), int)], axis=2)
    best = np.take_along_axis(logits, order, axis=2)
    best[:, :, -1] = np.finfo(np.float32).min  # [CLS] has a column of its own
    scores = {"start_pos": order[0], "end_pos": order[1], "cls_logit": logits[:, :, 0].T}
    restored = all_logits({**scores, "start_logit": best[0], "end_logit": best[1]})
    np.testing.assert_array_equal(restored, logits)


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "pages.jsonl", [simplified(n, words=200) for n in (1, 2)])


def test_a_real_run_of_our_engines(pages: Path, tiny_model: Path) -> None:
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
