"""The benchmark on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nq
from experiments.benchmark import main


@pytest.mark.slow
def test_all_figures_are_measured(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data", str(nq.bundled_sample()), "--model", str(tiny_model), "--json"]
    assert main([*options, "--windows", "50"]) == 0
    figures = json.loads(capsys.readouterr().out)
    relative = figures.pop("prediction on disk over in memory, %")
    assert relative > -100
    assert len(figures) == 7 and all(value > 0 for value in figures.values())
    assert {"peak memory at 40 pages, MB", "peak memory at 400 pages, MB"} <= figures.keys()
