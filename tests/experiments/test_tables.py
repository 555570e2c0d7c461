"""Tables of the documentation: written from result files, checked, and recorded by a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import table_sources, tables
from experiments.sweep import Row

ROW = Row(
    "mixed", 23.1, 19.04, -0.339, 37.2, 1.9, 0.44031, 0.0167, 0.24, 972.4, {"predict_s": 19.0}
)
SWEEP = {"rows": [{**vars(ROW)}, {**vars(ROW), "profile": "baseline", "max_drift": None}]}
MATCH = {"questions": 40, "answered_in_short": 23, "matched": 7, "share": 0.175}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a README that has two tables, and one result file."""
    (tmp_path / "docs").mkdir()
    save(tmp_path, "sweep_60", SWEEP)
    page(tmp_path, "README.md", "profiles")
    page(tmp_path, "docs/benchmarks.md", "sweep_60")
    return tmp_path


def page(root: Path, path: str, name: str) -> None:
    text = f"# Title\n\n<!-- table: {name} -->\nold\n<!-- end -->\n\nafter\n"
    (root / path).write_text(text, encoding="utf-8")


def save(root: Path, name: str, result: Any) -> None:
    values = ("python -m made.up", "2026-11-22", "2 cores", {"keras": "3.15.0"}, result)
    path = root / table_sources.RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(dict(zip(table_sources.KEYS, values, strict=True))), encoding="utf-8"
    )


def test_tables_of_the_repository_are_up_to_date() -> None:
    assert tables.update(tables.ROOT, write=False) == []


def test_a_result_shows_its_figures_and_their_origin(root: Path) -> None:
    tables.update(root, write=True)
    text = (root / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    row = "| mixed | 23.1 | 19.0 | -34% | 37.2 | 0.4403 | 1.7% | 0.24 | 972 |"
    assert f"\n{row}\n" in text and "\nold\n" not in text
    assert "Measured on 2026-11-22 with 2 cores (keras 3.15.0):" in text
    assert "```\npython -m made.up\n```\n<!-- end -->" in text


def test_record_keeps_the_command_and_what_it_printed(tmp_path: Path) -> None:
    command = ["python", "-c", f"print('''{json.dumps(MATCH)}''')"]
    path = tables.record("match_pages", command, tmp_path)
    data = json.loads(path.read_text(encoding="utf-8"))
    assert path == tmp_path / "experiments" / "results" / "match_pages.json"
    assert data["result"] == MATCH and data["command"].startswith("python -c ")
    assert data["machine"] and "keras" in data["versions"]
    assert "| 40 | 23 | 7 |" in tables.table("match_pages", tmp_path)


def test_check_succeeds_and_record_needs_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert tables.main(["--check"]) == 0
    assert capsys.readouterr().out == "all tables are up to date\n"
    assert tables.main(["--record", "sweep_60"]) == 2
    assert "the COMMAND to run" in capsys.readouterr().err
    assert tables.main(["--record", "speed", "--", "true"]) == 1
    assert "unknown table 'speed'; known are" in capsys.readouterr().err
