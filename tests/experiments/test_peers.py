"""Peers: peaks, the table, skipped and failed peers, a real tiny run."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.peers import __main__ as command
from experiments.peers.flops import peaks
from experiments.peers.measure import Ready, measure
from experiments.peers.models import BASELINE, LOADERS, PEERS, Peer, Task, all_logits
from experiments.peers.report import Measurement, Report, rows, table
from nq.config import WindowConfig
from nq.errors import Error
from nq.model.shapes import window_gflop
from tests.nq_records import simplified, write_lines
from tests.terminal_output import without_progress
from tests.tiny_models import SHAPE

ROOT = Path(__file__).parent.parent.parent
TORCH = ("torch", "transformers")


def measurement(
    maker: str, variant: str, precision: str, *windows_per_s: float, drift: float = 0.0
) -> Measurement:
    """Returns a measurement of 16 windows per round, with this difference of one logit."""
    logits = np.zeros((2, 16, 4), np.float32)
    logits[1, 3, 2] = drift
    seconds = [16 / speed for speed in windows_per_s]
    return Measurement(Peer(maker, variant), Ready(precision, 1.0, 900.0, logits), seconds)


MEASUREMENTS = (
    measurement("nq", "baseline", "float32", 8.0, 10.0, 90.0),
    measurement("nq", "mixed", "bfloat16", 30.0, 30.0, 30.0, drift=-0.026),
    measurement("other", "float32", "float32", 5.0, 5.0, 5.0),
    measurement("another", "float32", "float32", 20.0, 20.0, 20.0),
    measurement("other", "int8", "int8", 40.0, 40.0, 40.0),
)
PEAKS = {"float32": 400.0, "bfloat16": 1200.0}


def test_peaks_are_measured_for_both_types() -> None:
    gflop_per_s = peaks(size=64, times=2)
    assert list(gflop_per_s) == ["float32", "bfloat16"]
    assert all(value > 0 for value in gflop_per_s.values())


def test_rows_by_hand() -> None:
    by_name = {row.name: row for row in rows(MEASUREMENTS, 10.0, PEAKS)}
    baseline, mixed, int8 = (by_name[n] for n in ("nq/baseline", "nq/mixed", "other/int8"))
    assert baseline.windows_per_s == 10.0  # the median: one fast round does not change it
    assert (baseline.against_baseline, baseline.against_best_peer) == (1.0, 0.5)
    assert (baseline.gflop_per_s, baseline.of_peak) == (100.0, 0.25)
    assert (mixed.against_baseline, mixed.against_best_peer, mixed.of_peak) == (3.0, None, 0.25)
    assert (int8.against_best_peer, int8.of_peak) == (1.0, None)
    assert by_name["other/float32"].against_best_peer == 0.25


def test_table_has_measured_skipped_and_failed_peers() -> None:
    peers = rows(MEASUREMENTS, 10.0, PEAKS)
    report = Report("bundled", 512, 8, 16, 10.0, PEAKS, peers, {"a/b": "no c"}, {"d/e": "failed"})
    lines = table(report).splitlines()
    first, second = (" ".join(line.split()) for line in lines[1:3])
    assert first == "nq/baseline float32 10 1.00 0.50 100 25% 900 0"
    assert second == "nq/mixed bfloat16 30 3.00 - 300 25% 900 2.6e-02"
    assert "16 windows of 512 pieces, 10.0 GFLOP each, in batches of 8; median of 3" in table(
        report
    )
    assert lines[-2:] == ["skipped a/b: no c", "failed d/e: failed"]
    assert json.loads(json.dumps(report.to_dict()))["peers"][0]["windows_per_s"] == 10.0


def test_peers_that_are_not_installed_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in TORCH else find("json")
    )
    installed, skipped = command.available(list(PEERS.values()))
    assert installed[0] == BASELINE
    assert all(peer.is_nq for peer in installed)
    assert [name for name in PEERS if not name.startswith("nq/")] == list(skipped)
    message = "torch and transformers not installed: run pip install 'nq-pipeline[peers]'"
    assert set(skipped.values()) == {message}


def test_all_extras_of_missing_packages_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert PEERS["openvino/int8"].missing().endswith("pip install 'nq-pipeline[peers,openvino]'")
    assert not BASELINE.missing()


def test_every_peer_has_a_loader() -> None:
    assert {peer.maker for peer in PEERS.values()} == set(LOADERS)


def test_logits_are_restored_to_the_order_of_positions() -> None:
    logits = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
    order = np.argsort(-logits[:, :, 1:], axis=2) + 1
    order = np.concatenate([order, np.zeros((2, 3, 1), int)], axis=2)
    best = np.take_along_axis(logits, order, axis=2)
    best[:, :, -1] = np.finfo(np.float32).min  # [CLS] has a column of its own
    scores = {"start_pos": order[0], "end_pos": order[1], "cls_logit": logits[:, :, 0].T}
    restored = all_logits({**scores, "start_logit": best[0], "end_logit": best[1]})
    np.testing.assert_array_equal(restored, logits)


@pytest.mark.slow
def test_a_peer_that_fails_is_reported_and_does_not_stop_the_others(tmp_path: Path) -> None:
    rows = tmp_path / "rows.npz"
    task = Task(tmp_path, tmp_path, WindowConfig(), rows, rows, 8)
    steps: list[tuple[int, int]] = []
    worker, other = measure(
        [BASELINE, PEERS["nq/mixed+grappler+frozen+buckets"]],
        task,
        1,
        tmp_path,
        lambda new, total: steps.append((new, total)),
    )
    assert worker.failure.startswith("FileNotFoundError: ")
    assert other.failure == worker.failure
    assert not worker.seconds
    assert steps == [(1, 4)] * 4
    assert "Traceback" in (tmp_path / "nq-baseline.log").read_text(encoding="utf-8")
    with pytest.raises(Error, match="nq/baseline: FileNotFoundError"):
        command.measured([worker, other])


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "pages.jsonl", [simplified(n, words=200) for n in (1, 2)])


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.peers", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_real_run_of_our_engines(pages: Path, tiny_model: Path, tmp_path: Path) -> None:
    process = run(
        *("--data", pages, "--model", tiny_model, "--output", tmp_path / "out", "--json"),
        *("--batch-size", 2, "--windows", 3, "--rounds", 2),
        *("--peers", "nq/mixed+grappler+frozen+buckets"),
    )
    assert (process.returncode, without_progress(process.stderr)) == (0, "")
    result = json.loads(process.stdout)
    assert json.loads((tmp_path / "out" / "peers.json").read_text("utf-8")) == result
    assert (result["max_seq_length"], result["batch_size"], result["windows"]) == (32, 2, 128)
    assert result["gflop_per_window"] == pytest.approx(window_gflop(SHAPE, 32))
    baseline, mixed = result["peers"]
    assert (baseline["name"], baseline["precision"]) == ("nq/baseline", "float32")
    assert (mixed["precision"], mixed["against_best_peer"]) == ("bfloat16", None)
    assert (baseline["drift"], baseline["against_baseline"]) == (0.0, 1.0)
    assert 0 < mixed["drift"] < 0.5
    assert all(len(row["rounds"]) == 2 and row["windows_per_s"] > 0 for row in result["peers"])
    assert (result["skipped"], result["failed"]) == ({}, {})


@pytest.mark.slow
def test_too_few_pages_give_a_one_line_error(pages: Path, tiny_model: Path) -> None:
    process = run("--data", pages, "--model", tiny_model, "--windows", 5000)
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.startswith("nq: error: ")
    assert "give more pages, or ask for fewer windows" in process.stderr
    assert process.stderr.count("\n") == 1
