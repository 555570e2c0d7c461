"""Savings and costs of margins: compared with a real run under ``prune``, and on random scores."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nq
from experiments.margin import main
from nq.config import RankingWeights
from nq.inference.prune import NEAR
from nq.model.folder import load_settings, save_settings
from tests.jobs import predictions

pytestmark = pytest.mark.extended

N = 4


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records with even and odd ids, and one whose id is not a number."""
    lines = nq.bundled_sample().read_text(encoding="utf-8").splitlines()[:N]
    ids = [2, 4, 5, "a"]
    path = tmp_path_factory.mktemp("margin") / "data.jsonl"
    records = (json.loads(line) | {"example_id": i} for line, i in zip(lines, ids, strict=True))
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.fixture
def pruning_model(tiny_model: Path, tmp_path: Path) -> Path:
    """A model whose decision depends on BM25 more than on scores, so that windows are pruned."""
    folder = shutil.copytree(tiny_model, tmp_path / "pruning_model")
    settings = load_settings(folder)
    weights = RankingWeights(bm25=3.0, max_evidence=2.0)
    decision = replace(settings.decision, weights=weights)
    save_settings(folder, replace(settings, decision=decision))
    return folder


def compare(capsys: pytest.CaptureFixture[str], *options: object) -> dict[str, Any]:
    """Returns the JSON result of the command."""
    capsys.readouterr()
    assert main([*map(str, options), "--profile", "baseline", "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_figures_are_those_of_a_run_under_prune(
    data: Path, pruning_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full, pruned = (
        nq.run(nq.Job([data], pruning_model, profile, output=tmp_path / profile))
        for profile in ("baseline", "prune")
    )
    options = ("--data", data, "--model", pruning_model, "--half", "all", "--margins", NEAR)
    result = compare(capsys, *options)
    (row,) = result["margins"]
    assert (result["questions"], result["windows"]) == (N, full.windows)
    assert 0 < row["read"] == pruned.read_windows / full.windows < 1
    names = {"long": "long_answer", "short": "short_answers", "yes_no": "yes_no_answer"}
    both = list(zip(predictions(pruned.folder), predictions(full.folder), strict=True))
    for part, name in names.items():
        assert row["changed"][part] == sum(a[name] != b[name] for a, b in both) / N
    for part in ("long", "short"):
        before, after = (run.metrics[f"{part}-answer-f1"] for run in (full, pruned))
        assert result["f1"][part] == before
        assert row["f1"][part] == pytest.approx(after - before)
