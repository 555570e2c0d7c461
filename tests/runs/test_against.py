"""Tests the comparison with finished runs of any model, and the gate, by real runs."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from nq import storage
from nq.commands.main import console
from nq.evaluation.answer_files import PREDICTIONS
from nq.evaluation.gate import Parity, question_counts, relative_loss
from nq.evaluation.labels import read_gold, read_predictions, same_answers
from nq.model import joint
from nq.runs import folder
from nq.runs.folder import COMPARISON_PAGE, JOB, METRICS, FinishedRun
from tests.conftest import Commands
from tests.support import nq_records, tiny_models

QUESTIONS = 10
LONG_ONLY = ("--set", "long_threshold=-9,short_threshold=9")
"""The only block of each page is the right one, so that all long answers are right."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = [nq_records.simplified(i, words=4 + 5 * i) for i in range(1, QUESTIONS + 1)]
    return nq_records.write_lines(tmp_path_factory.mktemp("data") / "questions.jsonl", records)


@pytest.fixture(scope="module")
def first(tiny_model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in which every long answer is right, and none is short."""
    folder = tmp_path_factory.mktemp("first") / "run"
    command = arguments(folder, data, tiny_model, *LONG_ONLY, "--keep-scores")
    assert console(list(map(str, command))) == 0
    assert read(folder / METRICS)["metrics"]["micro_f1"] == pytest.approx(2 / 3)
    return folder


def read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def arguments(folder: Path, data: Path, model: Path, *options: object) -> list[object]:
    paths = ["--data", data, "--model", model, "--output", folder]
    return ["answer", *paths, "--no-track", "--profile", "openvino", *options]


@pytest.mark.slow
def test_a_run_of_another_model_passes_the_gate(
    first: Path,
    data: Path,
    tiny_model: Path,
    tiny_mpnet: Path,
    tmp_path: Path,
    commands: Commands,
) -> None:
    gate = ("--against", first, "--max-loss", 0.02)
    command = arguments(tmp_path / "run", data, tiny_mpnet, *LONG_ONLY, *gate)
    parity = commands.json(*command)["parity"]
    assert parity["against"] == f"openvino · {tiny_model.name} in {first}"
    names = f"openvino · {tiny_mpnet.name} in {tmp_path / 'run'} and {parity['against']}"
    assert parity["standing"] == f"{names} have the same F1, 0.667"
    assert (parity["answers"], parity["max_drift"]) == (QUESTIONS, None)  # other windows
    assert parity["gate"]["verdict"] == "passed"
    assert (parity["gate"]["loss"], parity["gate"]["high"]) == (0, 0)
    metrics = read(tmp_path / "run" / METRICS)
    assert metrics["parity"] == parity
    assert f"\n{parity['standing']}\ngate: " in commands.out(*command)
    against = ("--against", first, "--output", tmp_path / "report.html")
    assert parity["standing"] in commands.out("report", tmp_path / "run", *against)
    assert parity["standing"] in (tmp_path / "report.html").read_text("utf-8")
    both = commands.json("report", tmp_path / "run", first)["reason"]
    assert " and " in both and " have the same F1, 0.667. No run is named" in both
    assert tiny_model.name in both and tiny_mpnet.name in both and "best" not in both
    FinishedRun(tmp_path / "run")
    assert "metrics.json" in read(tmp_path / "run" / JOB)["files"]
    assert not (tmp_path / "run" / "scores").exists()


@pytest.mark.slow
def test_a_run_that_loses_too_much_fails(
    first: Path, data: Path, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    nothing = ("--set", "long_threshold=9,short_threshold=9", "--keep-scores")
    gate = ("--against", first, "--max-loss", 0.02, "--profile", "baseline", "--json")
    command = arguments(tmp_path, data, tiny_model, *nothing, *gate)
    parity = json.loads(commands.out(*command, code=1))["parity"]
    assert parity["gate"]["verdict"] == "failed" and parity["gate"]["low"] == 1
    assert 0 <= parity["max_drift"] < 1e-4  # the same model and windows
    assert all(f1 in commands.err.splitlines()[-1] for f1 in ("0.0000", "0.6667"))


@pytest.mark.slow
def test_a_gate_needs_a_run_with_right_answers(
    data: Path, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    """It is refused before the model is loaded, and leaves no run."""
    nothing = ("--set", "long_threshold=9,short_threshold=9")
    commands.out(*arguments(tmp_path / "first", data, tiny_model, *nothing))
    gate = ("--against", tmp_path / "first", "--max-loss", 0.02)
    problem = commands.error(*arguments(tmp_path / "run", data, tiny_model, *gate), code=1)
    assert str(tmp_path / "first") in problem and "--max-loss" in problem
    assert not (tmp_path / "run" / JOB).exists()


@pytest.mark.slow
def test_other_logits_are_seen(
    first: Path, data: Path, tiny_vocab: Path, tmp_path: Path, commands: Commands
) -> None:
    """Of a model with other weights, whose windows are the same."""
    model, shape = joint.build(tiny_models.SHAPE, seed=5), tiny_models.SHAPE
    tiny_models.save(tmp_path, model, shape, tiny_vocab, max_seq_length=32, doc_stride=8)
    options = ("--set", "short_threshold=-9", "--keep-scores", "--against", first)
    parity = commands.json(*arguments(tmp_path / "run", data, tmp_path, *options))["parity"]
    assert parity["changed"] == QUESTIONS and parity["changed_share"] == 1
    assert parity["max_drift"] > parity["mean_drift"] > 0.1


@pytest.mark.slow
def test_few_lost_answers_are_undecided(
    first: Path, data: Path, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    predictions = read(first / PREDICTIONS)["predictions"]
    scores = [one["long_answer_score"] for one in predictions]
    lowest, second, *_ = sorted(set(scores))
    lost = scores.count(lowest)
    thresholds = f"long_threshold={(lowest + second) / 2},short_threshold=9"
    options = ["--set", thresholds, "--against", first, "--max-loss", 0.2]
    command = arguments(tmp_path, data, tiny_model, *options)
    gate = commands.json(*command)["parity"]["gate"]
    gold = read_gold(data)
    counts = (
        question_counts(gold, read_predictions(run / PREDICTIONS)) for run in (tmp_path, first)
    )
    expected = relative_loss(*counts)
    assert (gate["loss"], gate["low"], gate["high"]) == pytest.approx(
        (expected.loss, expected.low, expected.high)
    )
    right = QUESTIONS - lost
    assert expected.loss == pytest.approx(1 - 2 * right / (right + 2 * QUESTIONS) / (2 / 3))
    assert gate["verdict"] == "undecided"
    assert commands.json("report", tmp_path, "--against", first)["parity"]["gate"] == gate
    assert "relative loss of micro-F1" in (tmp_path / "report.html").read_text("utf-8")


@pytest.mark.slow
def test_several_runs_are_compared_with_the_first(
    first: Path, data: Path, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    """Changed answers and the loss are those of the files that the runs wrote."""
    scores = [one["long_answer_score"] for one in read(first / PREDICTIONS)["predictions"]]
    for name, threshold in (("some", sorted(scores)[QUESTIONS // 2]), ("none", 9)):
        options = ["--set", f"long_threshold={threshold},short_threshold=9"]
        commands.out(*arguments(tmp_path / name, data, tiny_model, *options))
    runs = [first, tmp_path / "some", tmp_path / "none"]
    result = commands.json("report", *runs)
    assert result["page"] == str(first / COMPARISON_PAGE) and "No run is named" in result["reason"]
    rows = {Path(row["name"]): row for row in result["rows"]}
    gold, answers = read_gold(data), [read_predictions(run / PREDICTIONS) for run in runs]
    assert set(rows) == set(runs)
    for run, own in zip(runs, answers, strict=True):
        row, metrics = rows[run], read(run / METRICS)
        differing = [key for key in own if not same_answers(own[key], answers[0][key])]
        assert row["changed"] == len(differing)
        assert row["micro_f1"] == metrics["metrics"]["micro_f1"]
        assert row["windows_per_s"] == metrics["windows_per_s"]
        counts = [question_counts(gold, one) for one in (own, answers[0])]
        assert row["loss"][0] == pytest.approx(relative_loss(*counts).loss)
    assert 0 < rows[runs[1]]["changed"] < rows[runs[2]]["changed"] == QUESTIONS
    assert FinishedRun(first).predictions == answers[0]  # the page is one of its files
    assert "some" in commands.out("report", *runs, "--output", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes().startswith(b"<!DOCTYPE")


@pytest.mark.slow
def test_runs_of_models_whose_folders_have_one_name_are_compared_by_questions(
    data: Path, tiny_model: Path, tiny_mpnet: Path, tmp_path: Path, commands: Commands
) -> None:
    """They stay in their order, the fastest first or not."""
    runs = list[Path]()
    for place, model in (("a", tiny_model), ("b", tiny_mpnet)):
        copy = shutil.copytree(model, tmp_path / place / "reader")
        runs.append(tmp_path / place / "run")
        commands.out(*arguments(runs[-1], data, copy))
    for order in (runs, runs[::-1]):
        output = ("--output", tmp_path / "page.html")
        rows = commands.json("report", *order, *output)["rows"]
        assert [(row["model"], Path(row["name"])) for row in rows] == [("reader", o) for o in order]
        for row in rows:
            assert row["questions_per_s"] == pytest.approx(QUESTIONS / row["predict_s"])
            assert row["against"] == str(order[0])


@pytest.mark.slow
def test_a_comparison_that_cannot_be_written_leaves_the_run_whole(
    first: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer is stopped at each of its three files."""
    parity = Parity("baseline", QUESTIONS, 0, None, None, {})
    for stop in range(3):
        calls = itertools.count()

        def stopped(write: Any, stop: int = stop, calls: Any = calls) -> Any:
            def call(*args: Any) -> None:
                if next(calls) == stop:
                    raise KeyboardInterrupt
                write(*args)

            return call

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(storage, "write_json", stopped(storage.write_json))
            patch.setattr(folder, "_write_metrics", stopped(folder._write_metrics))
            FinishedRun(first).add_parity(parity, [data])
        assert ("parity" in FinishedRun(first).metrics) == (stop == 2)
    FinishedRun(first).add_parity(parity, [data])
    FinishedRun(first).add_parity(parity, [data])
    assert FinishedRun(first).metrics["parity"] == parity.to_dict()
