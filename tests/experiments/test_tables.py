"""Tables of the documentation: written from result files, checked, and recorded by a command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments import table_sources, tables
from experiments.sweep import Row
from nq.errors import Error
from nq.inference.profile import OPTIMIZATIONS
from tests.experiments import test_concurrency, test_scaling

ROW = Row(
    "mixed", 23.1, 19.04, -0.339, 37.2, 1.9, 0.44031, 0.0167, 0.24, 972.4, {"predict_s": 19.0}
)
SWEEP = {"rows": [{**vars(ROW)}, {**vars(ROW), "profile": "baseline", "max_drift": None}]}
TUNE = {
    f"odd_{name}": value
    for name, value in {
        "examples": 260,
        "micro_f1": 0.4721,
        "micro_f1_best": 0.4971,
        "long_f1": 0.6059,
        "long_f1_best": 0.627,
        "short_f1": 0.3302,
        "short_f1_best": 0.339,
        "long_calibration_error": 0.085,
        "long_calibration_error_by_chance": 0.063,
        "short_calibration_error": 0.067,
        "short_calibration_error_by_chance": 0.052,
        "long_auc": 0.839,
        "short_auc": 0.851,
        "yes_no_questions": 24,
        "yes_no_accuracy": 0.708,
    }.items()
}
PEER = {
    "name": "nq/baseline",
    "precision": "float32",
    "windows_per_s": 1.923,
    "against_baseline": 1.0,
    "drift": 0.0,
    "memory_mb": 900.4,
}
SERVING = {
    **{"clients": 16, "one_per_s": 2.0, "many_per_s": 9.0, "gain": 4.5},
    **{"alone_s": 0.4, "load_p95_s": 0.7, "p95_ratio": 1.75},
    **{"requests": 1000, "good": 667, "crashes": 0, "lost": 0, "memory_ratio": 1.002},
}
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


def test_update_replaces_what_stands_between_markers(root: Path) -> None:
    assert tables.update(root, write=False) == ["README.md", "docs/benchmarks.md"]
    assert "\nold\n" in (root / "README.md").read_text(encoding="utf-8")
    assert tables.update(root, write=True) == ["README.md", "docs/benchmarks.md"]
    text = (root / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# Title\n\n<!-- table: profiles -->\n| name | effect |\n|---|---|\n")
    assert text.endswith(" |\n<!-- end -->\n\nafter\n")
    assert all(f"\n| `{name}` | {o.help} |\n" in text for name, o in OPTIMIZATIONS.items())
    assert tables.update(root, write=True) == []


def test_a_result_shows_its_figures_and_their_origin(root: Path) -> None:
    tables.update(root, write=True)
    text = (root / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    row = "| mixed | 23.1 | 19.0 | -34% | 37.2 | 0.4403 | 1.7% | 0.24 | 972 |"
    assert f"\n{row}\n" in text and "\nold\n" not in text
    assert "Measured on 2026-11-22 with 2 cores (keras 3.15.0):" in text
    assert "```\npython -m made.up\n```\n<!-- end -->" in text


def test_other_kinds(root: Path) -> None:
    save(root, "tune_dev", TUNE)
    save(root, "peers_base", {"peers": [PEER]})
    save(root, "match_pages", MATCH)
    save(root, "changes_dev", {"rows": [{**vars(ROW), "micro_f1": 0.5}, vars(ROW)]})
    assert "| `mixed` | 1.7% | 0.4403 | -0.0597 | 0.24 |\n" in tables.table("changes_dev", root)
    assert "| micro-F1 | 0.472 | 0.497 |\n" in tables.table("tune_dev", root)
    assert "| yes/no accuracy (24 questions) |  | 0.708 |\n" in tables.table("tune_dev", root)
    assert "| `nq/baseline` | float32 | 1.92 | 1.00 | 0 | 900 |\n" in tables.table(
        "peers_base", root
    )
    assert "| 40 | 23 | 7 |\n" in tables.table("match_pages", root)
    save(root, "serving_small", SERVING)
    assert "| ratio | 4.50x | at least 2.5 |\n" in tables.table("serving_small", root)
    assert "| answers lost of 667 | 0 | at most 0 |\n" in tables.table("serving_small", root)
    assert "| `--port` | port to listen on; 0 takes a free one | 8000 |" in tables.table(
        "serve", root
    )
    assert "| `roberta` | `RobertaForQuestionAnswering` |\n" in tables.table("families", root)


def test_studies_show_their_verdicts_and_some_rows(root: Path) -> None:
    times = [("sync", 2.0), ("threads", 3.0)]
    save(root, "concurrency_cpu", {"rows": [test_concurrency.row(a, 2, s) for a, s in times]})
    text = tables.table("concurrency_cpu", root)
    assert "| sync is the fastest at every N | tensorflow | confirmed |\n" in text
    assert "| base | 128 | tensorflow | 2 | threads | 3 | 1.50 [1.50, 1.50] |" in text
    rows = [test_scaling.row("engines", 1.0, True), test_scaling.row("engines", 2.0)]
    rows[1]["engine"] = "torch"
    save(root, "scaling_cpu", {"rows": rows})
    text = tables.table("scaling_cpu", root)
    assert "| (a) PyTorch is faster than TensorFlow | refuted |\n" in text


def test_results_of_the_readme_come_from_several_files(root: Path) -> None:
    rows = [{**vars(ROW), "profile": profile} for profile in table_sources.COMPARED]
    for name in ("sweep_60", "changes_dev"):
        save(root, name, {"rows": rows})
    save(root, "tune_dev", TUNE)
    save(root, "tune_ranker", {**TUNE, "odd_micro_f1": 0.5, "odd_short_f1": 0.4})
    save(root, "match_pages", MATCH)
    save(root, "match_ranker", {**MATCH, "matched": 9})
    save(root, "tune_base", {**TUNE, "odd_micro_f1": 0.6, "odd_long_f1": 0.7})
    save(root, "match_base", {**MATCH, "matched": 8})
    text = tables.table("results", root)
    assert "| 0.472 | 0.500 | 0.600 |\n" in text
    assert "| 0.606 / 0.330 | 0.606 / 0.400 | 0.700 / 0.330 |\n" in text
    assert "| 23 / 7 | 23 / 9 | 23 / 8 |\n" in text
    assert "/ `mixed+buckets+openvino` | 37.2 / 37.2 |  |  |\n" in text
    assert text.endswith("| 1.7% |  |  |\n")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nonsense", "unknown table 'nonsense'; known are profiles"),
        ("peers_base", "peers_base.json is missing: run python -m experiments.tables --record"),
        ("tune_60", "not a result of the kind 'tune'"),
    ],
)
def test_a_table_without_a_source_is_an_error(root: Path, name: str, message: str) -> None:
    save(root, "tune_60", SWEEP)
    page(root, "README.md", name)
    with pytest.raises(Error, match=message):
        tables.update(root, write=True)


def test_an_incomplete_marker_is_an_error(root: Path) -> None:
    (root / "README.md").write_text("<!-- table: profiles -->\n", encoding="utf-8")
    with pytest.raises(Error, match=r"README.md: a marker of a table is incomplete"):
        tables.update(root, write=True)


def test_record_keeps_the_command_and_what_it_printed(tmp_path: Path) -> None:
    command = ["python", "-c", f"print('''{json.dumps(MATCH)}''')"]
    path = tables.record("match_pages", command, tmp_path)
    data = json.loads(path.read_text(encoding="utf-8"))
    assert path == tmp_path / "experiments" / "results" / "match_pages.json"
    assert data["result"] == MATCH and data["command"].startswith("python -c ")
    assert data["machine"] and "keras" in data["versions"]
    assert "| 40 | 23 | 7 |" in tables.table("match_pages", tmp_path)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise SystemExit(3)", "failed with exit code 3"),
        ("print('a table')", "printed no result of the kind 'match'"),
        ("print({})", "printed no result of the kind 'match'"),
    ],
)
def test_record_refuses_what_is_no_result(tmp_path: Path, program: str, message: str) -> None:
    with pytest.raises(Error, match=message):
        tables.record("match_pages", [sys.executable, "-c", program], tmp_path)
    assert not list(tmp_path.rglob("*.json"))


def test_check_succeeds_and_record_needs_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert tables.main(["--check"]) == 0
    assert capsys.readouterr().out == "all tables are up to date\n"
    assert tables.main(["--record", "sweep_60"]) == 2
    assert "the COMMAND to run" in capsys.readouterr().err
    assert tables.main(["--record", "speed", "--", "true"]) == 1
    assert "unknown table 'speed'; known are" in capsys.readouterr().err
