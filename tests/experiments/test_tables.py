"""Tables of the documentation: written from result files, checked, and recorded by a command."""

import json
from pathlib import Path

import pytest

from experiments import table_sources, tables
from nq.bundle import bundled_model
from nq.model.folder import ModelFolder

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
    assert tables.main(["--record", "compare_60"]) == 2
    assert "COMMAND" in capsys.readouterr().err
    assert tables.main(["--record", "speed", "--", "true"]) == 1
    assert "'speed'" in capsys.readouterr().err


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository without tables, with a copy of the bundled model."""
    root, model = tmp_path / "root", tmp_path / "model"
    (root / "experiments").mkdir(parents=True)
    (root / "README.md").touch()
    (root / "experiments" / "README.md").touch()
    ModelFolder(bundled_model()).copy(model)
    monkeypatch.setattr(table_sources, "bundled_model", lambda: model)
    monkeypatch.setattr(tables, "ROOT", root)
    return root


def record(name: str, result: dict[str, object], root: Path) -> Path:
    program = f"print({json.dumps(result)!r})"
    assert tables.main(["--record", name, "--", "python", "-c", program, "--json"]) == 0
    return root / "experiments" / "results" / f"{name}.json"


def change(folder: Path, **settings: object) -> None:
    file = folder / "nq.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **settings}))


def test_a_result_is_stale_where_another_model_ships(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, independent = record("match_pages", MATCH, root), record("peers_base", PEERS, root)
    assert tables.main(["--check"]) == 0
    assert "model" not in json.loads(independent.read_bytes())
    change(tmp_path / "model", cascades={})  # of this model behind others
    assert tables.main(["--check"]) == 0
    change(tmp_path / "model", decision={"long_threshold": 0.5})
    capsys.readouterr()
    assert tables.main(["--check"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("experiments/results/match_pages.json")
    assert f"--record match_pages -- {json.loads(path.read_bytes())['command']}" in line
    record("match_pages", MATCH, root)
    assert tables.main(["--check"]) == 0
    recorded = json.loads(path.read_bytes())
    path.write_text(json.dumps({**recorded, "model": {**recorded["model"], "weights": "0" * 64}}))
    assert tables.main(["--check"]) == 1
    path.write_text(json.dumps({name: recorded[name] for name in table_sources.KEYS}))
    assert tables.main(["--check"]) == 1


def test_a_cascade_depends_on_the_decisions_of_both_models(root: Path, tmp_path: Path) -> None:
    fitted = table_sources.read_result("cascade_dev", Path(table_sources.__file__).parents[1])
    record("cascade_dev", fitted["result"], root)
    change(tmp_path / "model", decision={"long_threshold": 0.5})
    assert table_sources.stale(root) == []
    change(tmp_path / "model", cascades={})
    assert len(table_sources.stale(root)) == 1
