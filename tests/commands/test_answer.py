"""Tests ``nq answer`` with bad records and with a damaged model."""

import json
import shutil
from pathlib import Path

from nq.evaluation.official import read_predictions
from tests.conftest import Commands
from tests.support import nq_records


def test_strict_makes_bad_records_an_error_behind_the_result(
    commands: Commands, tiny_model: Path, tmp_path: Path
) -> None:
    lines = [nq_records.simplified(1), b"{", nq_records.simplified(2), b"\xff\xfe"]
    data = nq_records.write_lines(tmp_path / "mixed.jsonl", lines)
    options = ["--model", tiny_model, "--output", tmp_path / "out", "--no-track", "--json"]
    (line,) = commands.out("answer", "--data", data, *options, "--strict", code=1).splitlines()
    result = json.loads(line)
    assert "2" in commands.err.splitlines()[-1]
    assert (result["examples"], result["dead_letters"]) == (2, 2)
    assert set(read_predictions(tmp_path / "out" / "predictions.json")) == {1, 2}
    letters = (tmp_path / "out" / "skipped.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(letter)["line"] for letter in letters] == [2, 4]


def test_a_damaged_model_leaves_no_run_behind(
    commands: Commands, tiny_model: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    options = ["--model", model, "--limit", 3, "--no-track", "--root", tmp_path / "runs"]
    assert str(weights) in commands.error("answer", *options)
    assert not [path for path in tmp_path.glob("runs/*") if not path.name.startswith("windows-")]
