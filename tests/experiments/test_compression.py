"""Study 3: rows, verdicts by hand, folders that are made once, real tiny models and runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import units
from experiments.compression import __main__ as command
from experiments.compression import report, speed, variants
from experiments.compression.models import (
    RAW,
    RECOVERED,
    STATES,
    TUNED,
    Answers,
    Models,
    answers,
    in_new_process,
    made,
    prunings,
    zero,
)
from experiments.compression.report import BASELINE, BFLOAT16, INT8
from experiments.intervals import CONFIRMED, NOT_TESTABLE, REFUTED, UNDECIDED
from nq.bundle import bundled_sample
from nq.errors import Error
from nq.evaluation.answers import PREDICTIONS
from nq.evaluation.labels import read_predictions
from nq.model.folder import load_config, load_settings
from nq.runs.job import Job
from nq.runs.parity import same_answers
from nq.runs.run import run
from tests.experiments import light_units

SAMPLE = str(bundled_sample())


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


def test_the_rows_are_known_and_named() -> None:
    some = variants.variants(["heads=9", "layers=4"], [RAW, TUNED])
    names = [report.name(variant.key) for variant in some]
    assert names == [
        *(BASELINE, "bfloat16", "int8", "2 instances", "int8 + 2 instances", "50% zeros"),
        *("heads=9 (raw)", "heads=9 (tuned)", "layers=4 (raw)", "layers=4 (tuned)"),
    ]
    assert len({str(variant.key) for variant in some}) == len(some)
    assert some[6].speed_key == some[7].speed_key != some[8].speed_key


@given(st.integers(1, 40), st.integers(1, 100), st.integers(1, 48))
def test_what_is_pruned_by_default_is_less_and_something(
    heads: int, units_of_64: int, layers: int
) -> None:
    whole = {"heads": heads, "ffn": 64 * units_of_64, "layers": layers}
    for spec in prunings(heads, 64 * units_of_64, layers):
        for part in spec.split(","):
            name, _, number = part.partition("=")
            assert 1 <= int(number) <= whole[name]
            assert name != "ffn" or int(number) % 64 == 0


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


def test_the_table_has_all_figures_of_a_row() -> None:
    text = report.table([row(1.0, 0, 0), row(1.5, -0.01, 0.03, profile=INT8, instances=2)])
    lines = text.splitlines()
    assert lines[2] == (
        "| baseline | 22.7 | 6.04 | 16 | 1.00 [1.00, 1.00] | 0.5000 |  |  |  |  |  |"
    )
    assert lines[3] == (
        "| int8 + 2 instances | 22.7 | 6.04 | 24 | 1.50 [1.50, 1.50] | 0.4950 | -0.50 "
        "| 1.0% [-1.0%, 3.0%] | 5.0% | undecided | 1.30x, at most 2% lost |"
    )
    assert "| the claim: both | undecided |" in lines


def test_a_folder_is_made_once_and_whole(tmp_path: Path, tiny_model: Path) -> None:
    models = Models(tmp_path, tiny_model, (SAMPLE,))
    assert (models.source / "config.json").is_file()
    (models.source / "mark").touch()
    assert (models.source / "mark").is_file()

    def stopped(path: Path) -> None:
        path.mkdir()
        (path / "part").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(tmp_path / "heads=9-raw", stopped)
    assert not (tmp_path / "heads=9-raw").exists()
    folder = made(tmp_path / "heads=9-raw", Path.mkdir)
    assert folder.is_dir() and not list(folder.iterdir())


def test_processes_of_a_row_compute_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "load", light_units.compression)
    computations = [speed.Computation(Path("m"), BASELINE, n, 8) for n in (1, 2)]
    one, two = speed.measure(computations, 3)
    assert (one.windows, two.windows) == (8, 16)
    assert [len(timed.loaded) for timed in (one, two)] == [1, 2]
    assert [len(timed.seconds) for timed in (one, two)] == [3, 3]
    assert min(*one.seconds, *two.seconds) >= 8e-4
    shares = [{core for some in loaded.cores for core in some} for loaded in two.loaded]
    everything = {core for some in one.loaded[0].cores for core in some}
    assert set.union(*shares) <= everything
    assert len(everything) < 2 or not set.intersection(*shares)


@pytest.mark.slow
def test_the_speed_of_a_real_model(tiny_model: Path) -> None:
    task = speed.Task(tiny_model, BASELINE, 4, 1)
    with units.started(speed.load, task) as unit:
        loaded = unit.receive()
        assert unit.ask(True) is None
    from nq.model import joint

    config = load_config(tiny_model)
    assert loaded.weights == joint.build(config, initialize=False).count_params()
    assert (loaded.length, loaded.precision) == (32, "float32")


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_study_without_pruning(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (study / "compression.json").read_text("utf-8")
    values = json.loads(text)
    names = [report.name(one) for one in values["rows"]]
    assert names == [
        *(BASELINE, "bfloat16", "int8", "2 instances", "int8 + 2 instances", "50% zeros"),
    ]
    baseline = values["rows"][0]
    assert (baseline["loss"], baseline["low"], baseline["high"], baseline["changed"]) == (0,) * 4
    assert {one["questions"] for one in values["rows"]} == {baseline["questions"]}
    assert values["rows"][3]["micro_f1"] == pytest.approx(baseline["micro_f1"], abs=0.02)
    assert (study / "compression.png").stat().st_size > 1000
    speeds = json.loads((study / "compression-speeds.json").read_text("utf-8"))["rows"]
    assert all(
        one.items() >= speed.items() for one, speed in zip(values["rows"], speeds, strict=True)
    )
    assert command.main(argv(study, "--prune")) == 0
    assert "| the claim: both |" in capsys.readouterr().out
    assert (study / "compression.json").read_text("utf-8") == text


@pytest.mark.slow
def test_kept_scores_decide_as_a_run_does(study: Path, tmp_path: Path) -> None:
    """A run with the tuned decision is the slower truth; only odd ids are reported."""
    source = study / "models" / "source"
    own: Answers = answers([SAMPLE], source, BASELINE, None, 16, study / "runs")
    decision = load_settings(source).decision
    gold, predictions = own.odd_half(decision)
    result = run(Job([SAMPLE], source, BASELINE, output=tmp_path))
    expected = read_predictions(result.folder / PREDICTIONS)
    odd = [key for key in expected if isinstance(key, int) and key % 2]
    assert odd and list(gold) == list(predictions) == odd
    assert all(same_answers(predictions[key], expected[key]) for key in odd)
    assert decision.weights != load_settings(study / "models" / "tiny").decision.weights


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 2, "--data and --dev are needed, or --quick"),
        (["--data", SAMPLE], 2, "--data and --dev are needed, or --quick"),
        (["--data", SAMPLE, "--dev", SAMPLE], 1, "a file of --dev is among those of --data"),
        (["--quick", "--epochz", "1"], 2, "unrecognized arguments: --epochz"),
        (["--quick", "--scores-profile", "mixed"], 1, "mixed rounds: give one in float32"),
        (["--quick", "--states", "tuned again"], 2, "invalid choice: 'tuned again'"),
    ],
)
def test_options_that_cannot_be_are_refused(
    options: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        found = command.main([*options, "--output", str(tmp_path / "out")])
    except SystemExit as error:
        found = int(str(error.code))
    assert found == code
    *_, line = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "out").exists()


def test_a_process_that_is_killed_is_an_error() -> None:
    import os

    with pytest.raises(Error, match="the process of _exit was killed, probably out of memory"):
        in_new_process(os._exit, 9)
