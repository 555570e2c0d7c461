"""The benchmark on a tiny model."""

import json
from pathlib import Path

import pytest

import nq
from experiments.benchmark import main

pytestmark = pytest.mark.extended

PAGES = 3


def test_all_figures_are_measured(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = nq.bundled_sample().read_text(encoding="utf-8").splitlines(keepends=True)
    data = tmp_path / "data.jsonl"
    data.write_text("".join(lines[:PAGES]), encoding="utf-8")
    options = ["--data", str(data), "--model", str(tiny_model), "--windows", "20", "--json"]
    assert main(options) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures.pop("prediction on disk over in memory, %") > -100
    assert len(figures) == 7 and all(value > 0 for value in figures.values())
    peaks = {f"peak memory at {n} pages, MB" for n in (PAGES, 10 * PAGES)}
    assert peaks <= figures.keys()
