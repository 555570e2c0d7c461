"""Tables of the documentation: written from result files, checked, and recorded by a command."""

import json
import shutil
from pathlib import Path

import pytest

from experiments import table_sources, tables
from tests.support.child_processes import python

MATCH: dict[str, object] = {"questions": 4, "answered_in_short": 2, "matched": 1}
PEERS = {"peers": [], "peak_gflop_per_s": {}, "model": "base", "windows": 1, "max_seq_length": 8}
PEERS |= {"gflop_per_window": 1.0, "batch_size": 1, "skipped": {}, "failed": {}}


def test_tables_of_the_repository_are_up_to_date() -> None:
    assert tables.update(tables.ROOT, write=False) == []


def test_results_were_measured_with_the_model_that_ships() -> None:
    assert table_sources.stale(tables.ROOT) == []


def test_record_needs_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert tables.main(["--show", "compression_cpu"]) == 0
    assert "| int8 + 2 instances |" in capsys.readouterr().out
    assert tables.main(["--record", "compare_20"]) == 2
    assert "COMMAND" in capsys.readouterr().err
    done = python("-m", "experiments.tables", "--record", "speed", "--", "true")
    assert done.returncode == 1 and "'speed'" in done.stderr


@pytest.fixture
def root(tmp_path: Path, tiny_pair: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository without tables, with a copy of a tiny pair as the default models."""
    root = tmp_path / "root"
    (root / "experiments").mkdir(parents=True)
    (root / "README.md").touch()
    (root / "experiments" / "README.md").touch()
    pair = shutil.copytree(tiny_pair, tmp_path / "pair")
    monkeypatch.setattr(table_sources, "DEFAULT", pair)
    monkeypatch.setattr(table_sources, "READER", pair / "reader")
    monkeypatch.setattr(tables, "ROOT", root)
    return root


def record(name: str, result: dict[str, object], root: Path) -> Path:
    program = f"print({json.dumps(result)!r})"
    assert tables.main(["--record", name, "--", "python", "-c", program, "--json"]) == 0
    return root / "experiments" / "results" / f"{name}.json"


def change(folder: Path, **settings: object) -> None:
    file = folder / "nq.json"
    values = json.loads(file.read_bytes())
    changed = {**values["decision"], **settings}
    file.write_text(json.dumps({**values, "decision": changed}))


def test_a_result_is_stale_where_other_models_ship(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, independent = record("match_pages", MATCH, root), record("peers_base", PEERS, root)
    assert tables.main(["--check"]) == 0
    assert "model" not in json.loads(independent.read_bytes())
    change(tmp_path / "pair" / "reader", long_threshold=0.5)  # of the reader alone
    assert tables.main(["--check"]) == 0
    change(tmp_path / "pair", long_threshold=0.5)
    capsys.readouterr()
    assert tables.main(["--check"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("experiments/results/match_pages.json")
    assert f"--record match_pages -- {json.loads(path.read_bytes())['command']}" in line
    record("match_pages", MATCH, root)
    assert tables.main(["--check"]) == 0
    recorded = json.loads(path.read_bytes())
    path.write_text(json.dumps({name: recorded[name] for name in table_sources.KEYS}))
    assert tables.main(["--check"]) == 1


def test_a_result_depends_on_the_model_that_its_command_names(root: Path, tmp_path: Path) -> None:
    pair = tmp_path / "pair"
    command = f"python -m experiments.string_match --model {pair / 'reader'}"
    of_reader, of_both = (
        table_sources.shipped("match_pages", text) for text in (command, "nq compare")
    )
    assert of_both["weights"].split("+")[1] == of_reader["weights"]
    change(pair / "reader", long_threshold=0.5)
    now = table_sources.shipped("match_pages", command)
    assert now["settings"] != of_reader["settings"]
    times = table_sources.shipped("scale_pages", command)
    change(pair / "reader", long_threshold=0.6)
    assert table_sources.shipped("scale_pages", command) == times
