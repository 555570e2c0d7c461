"""Study 3: rows, verdicts by hand, folders that are made once, real tiny models and runs."""

import json
from pathlib import Path

import pytest

from experiments.compression import __main__ as command
from experiments.compression import measure
from experiments.compression.models import STATES
from experiments.compression.report import BASELINE, BFLOAT16, INT8
from tests.experiments import light_units

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a quick study without pruning, whose speeds are not those of models."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "load", light_units.compression)
        assert command.main(argv(folder, "--prune")) == 0
    return folder


def argv(folder: Path, *more: str) -> list[str]:
    return ["--quick", "--rounds", "3", "--no-track", "--output", str(folder), *more]


def test_a_study_with_pruning(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "load", light_units.compression)
    assert command.main(argv(study, "--json")) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    pruned = [one for one in rows if one["prune"] and one["profile"] == BASELINE]
    assert [one["state"] for one in pruned] == list(STATES)
    assert len({json.dumps(one["seconds"]) for one in pruned}) == 1
    assert all(one["gflop"] < rows[0]["gflop"] for one in pruned)
    assert {one["profile"] for one in rows[-2:]} == {INT8, BFLOAT16}
    assert set(rows[-1]["reference_seconds"]) == {BASELINE, BFLOAT16}
