"""Study 3: rows, verdicts by hand, folders that are made once, real tiny models and runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.compression import __main__ as command
from experiments.compression import report, speed
from experiments.compression.models import (
    RAW,
    RECOVERED,
    STATES,
    in_new_process,
    zero,
)
from experiments.compression.report import BASELINE, BFLOAT16, INT8
from experiments.intervals import CONFIRMED, NOT_TESTABLE, REFUTED, UNDECIDED
from nq.model.folder import load_config
from tests.experiments import light_units

pytestmark = pytest.mark.extended


def row(speed: float, low: float, high: float, **values: Any) -> dict[str, Any]:
    """Returns a row whose rounds are all so many times as fast as the baseline."""
    loss = (low + high) / 2
    seconds = {BASELINE: [1.0] * 6, **values.pop("references", {})}
    return {
        **{"prune": "", "state": "", "profile": BASELINE, "instances": 1, "zeros": 0.0},
        **{"micro_f1": 0.5 * (1 - loss), "baseline_micro_f1": 0.5, "questions": 200},
        **{"loss": loss, "low": low, "high": high, "changed": 10},
        **{"weights": 22_700_000, "gflop": 6.04, "length": 256, "precision": "float32"},
        **{"windows": 16, "seconds": [1 / speed] * 6, "cores": [[[0, 1]]]},
        **{"reference_seconds": seconds, "reference_windows": 16, **values},
    }


def test_verdicts_by_hand() -> None:
    claimed = row(1.5, -0.01, 0.01, profile=INT8, instances=2, windows=32, seconds=[2 / 1.5] * 6)
    assert str(report.speed_up(claimed)) == "1.50 [1.50, 1.50]"
    rows = [row(1.0, 0.0, 0.0), row(2.0, 0, 0, profile=BFLOAT16), claimed]
    assert [verdict for _, verdict in report.claims(rows)] == [
        *([CONFIRMED] * 3),
        *([NOT_TESTABLE] * 3),
    ]
    slow = row(1.1, 0.0, 0.0, prune="heads=9", state=RAW)
    lossy = row(1.6, 0.1, 0.2, prune="layers=4", state=RAW)
    maybe = row(1.4, -0.05, 0.1, prune="layers=5", state=RECOVERED)
    assert report.best([*rows, lossy]) is lossy
    assert report.best([*rows, lossy, maybe]) is maybe
    assert report.best([*rows, lossy, maybe, slow]) is slow
    assert report.best(rows) is None
    assert [report.both(one) for one in (slow, lossy, maybe)] == [REFUTED, REFUTED, UNDECIDED]
    claims = dict(report.claims([*rows, slow, lossy, maybe]))
    assert claims["a pruned model: both, in float32"] == UNDECIDED
    references = {BFLOAT16: [0.5] * 6}
    sixteen = row(3.0, 0, 0.01, prune="layers=5", profile=BFLOAT16, references=references)
    assert str(report.speed_up(sixteen, BFLOAT16)) == "1.50 [1.50, 1.50]"
    claims = dict(report.claims([*rows, sixteen, row(1.01, 0.5, 0.6, zeros=0.5)]))
    assert list(claims.values())[-2:] == [CONFIRMED, CONFIRMED]
    claims = dict(report.claims([*rows, row(1.2, 0.5, 0.6, zeros=0.5)]))
    assert claims["half of the weights zero: not faster"] == REFUTED


def test_half_of_each_matrix_is_zero_and_the_rest_is_not(tiny_model: Path, tmp_path: Path) -> None:
    in_new_process(zero, tiny_model, tmp_path / "zeros", 0.5)
    from nq.model import joint

    whole, zeros = (joint.load(folder).model for folder in (tiny_model, tmp_path / "zeros"))
    matrices = 0
    for before, after in zip(whole.weights, zeros.weights, strict=True):
        old, new = np.asarray(before.numpy()), np.asarray(after.numpy())
        kept = new != 0
        np.testing.assert_array_equal(new[kept], old[kept])
        if before.path.startswith("layer_") and before.path.endswith("kernel"):
            matrices += 1
            assert kept.sum() == -(-old.size // 2)
            assert np.abs(old[kept]).min() >= np.abs(old[~kept]).max()
        else:
            np.testing.assert_array_equal(new, old)
    assert matrices == 4 * load_config(tiny_model).num_hidden_layers


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a quick study without pruning, whose speeds are not those of models."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "load", light_units.compression)
        assert command.main(argv(folder, "--prune")) == 0
    return folder


def argv(folder: Path, *more: str) -> list[str]:
    return ["--quick", "--rounds", "3", "--no-track", "--output", str(folder), *more]


def test_a_study_with_pruning(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(speed, "load", light_units.compression)
    assert command.main(argv(study, "--json")) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    pruned = [one for one in rows if one["prune"] and one["profile"] == BASELINE]
    assert [one["state"] for one in pruned] == list(STATES)
    assert len({json.dumps(one["seconds"]) for one in pruned}) == 1
    assert all(one["gflop"] < rows[0]["gflop"] for one in pruned)
    assert {one["profile"] for one in rows[-2:]} == {INT8, BFLOAT16}
    assert set(rows[-1]["reference_seconds"]) == {BASELINE, BFLOAT16}
