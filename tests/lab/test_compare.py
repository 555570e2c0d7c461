"""Tests the comparison of finished runs of any model, and the gate, by real runs."""

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import nq
from nq.evaluation.answer_files import PREDICTIONS
from nq.evaluation.gate import question_counts, relative_loss
from nq.evaluation.official import places, read_gold, read_predictions
from nq.lab.compare import _key
from nq.lab.rows import row
from nq.mlflow_store import connect
from nq.model import joint
from nq.runs.folder import COMPARISON_PAGE, JOB, METRICS, FinishedRun
from tests.conftest import Commands
from tests.lab.conftest import QUESTIONS
from tests.support import nq_records, tiny_models

pytestmark = pytest.mark.slow
LONG_ONLY = ("--set", "long_threshold=-9,short_threshold=9")
"""The only block of each page is the right one, so that all long answers are right."""
NOTHING = ("--set", "long_threshold=9,short_threshold=9")


@pytest.fixture(scope="module")
def first(tiny_model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in which every long answer is right, and none is short."""
    model = nq.Model.open(
        tiny_model, decision=nq.DecisionConfig(long_threshold=-9, short_threshold=9)
    )
    folder = tmp_path_factory.mktemp("first") / "run"
    result = nq.run(data, model=model, profile="openvino", output=folder, keep_scores=True)
    assert result.metrics["micro_f1"] == pytest.approx(2 / 3)
    return folder


def read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def arguments(folder: Path, data: Path, model: Path, *options: object) -> list[object]:
    paths = ["--data", data, "--model", model, "--output", folder]
    return ["answer", *paths, "--no-track", "--profile", "openvino", *options]


def test_a_run_of_another_model_passes_the_gate_and_all_doors_say_the_same(
    first: Path,
    data: Path,
    tiny_model: Path,
    tiny_mpnet: Path,
    tmp_path: Path,
    commands: Commands,
) -> None:
    run = tmp_path / "run"
    gate = ("--against", first, "--max-loss", 0.02)
    command = arguments(run, data, tiny_mpnet, *LONG_ONLY, *gate)
    difference = commands.json(*command)["against"]
    mine, other = difference["rows"]
    assert (mine["model"], other["model"]) == (tiny_mpnet.name, tiny_model.name)
    labels = [
        f"{one.name} · openvino · {at}" for one, at in ((tiny_mpnet, run), (tiny_model, first))
    ]
    assert mine["against"] == labels[1] and mine["max_drift"] is None  # other windows
    assert difference["gate"]["verdict"] == "passed"
    assert (difference["gate"]["loss"], difference["gate"]["high"]) == (0, 0)
    standing = f"{labels[0]} and {labels[1]} have the same F1, 0.667"
    assert f"\n{standing}\ngate: " in commands.out(*command)
    report = ("report", run, "--against", first, "--output", tmp_path / "report.html")
    assert standing in commands.out(*report)
    assert standing in (tmp_path / "report.html").read_text("utf-8")
    both = commands.json("report", run, first)
    assert both["reason"].startswith(f"{standing}. No run is named")
    assert [one["changed"] for one in both["rows"]] == [0, mine["changed"]]
    assert "metrics.json" in read(run / JOB)["files"] and not (run / "scores").exists()
    FinishedRun(run)  # it is whole


def test_a_run_that_loses_too_much_fails(
    first: Path, data: Path, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    gate = ("--against", first, "--max-loss", 0.02, "--profile", "baseline", "--json")
    command = arguments(tmp_path, data, tiny_model, *NOTHING, "--keep-scores", *gate)
    difference = json.loads(commands.out(*command, code=1))["against"]
    assert difference["gate"]["verdict"] == "failed" and difference["gate"]["low"] == 1
    assert 0 <= difference["rows"][0]["max_drift"] < 1e-4  # the same model and windows
    assert all(f1 in commands.err.splitlines()[-1] for f1 in ("0.0000", "0.6667"))


def test_what_cannot_be_compared_is_refused_before_the_model_is_loaded(
    first: Path, data: Path, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    commands.out(*arguments(tmp_path / "nothing", data, tiny_model, *NOTHING))
    other = nq_records.write_lines(tmp_path / "other.jsonl", [nq_records.simplified(99)])
    for file, against, options, problem in (
        (data, tmp_path / "nothing", ["--max-loss", 0.02], "leave out --max-loss"),
        (other, first, [], "give both the same data"),
        (data, first, ["--limit", 2], "the same limit"),
        (data, tmp_path, [], "job.json"),
    ):
        command = arguments(tmp_path / "run", file, tiny_model, "--against", against, *options)
        line = commands.error(*command)
        assert str(against) in line and problem in line
        assert not (tmp_path / "run" / JOB).exists()
    assert "another --output" in commands.error(
        *arguments(first, data, tiny_model, "--against", first)
    )
    for loss in ("1.5", "x"):
        command = arguments(first, data, tiny_model, "--against", first, "--max-loss", loss)
        assert "--max-loss" in commands.error(*command, code=2)


@pytest.mark.parametrize("has_same_windows", [True, False])
def test_the_run_in_mlflow_has_the_difference(
    has_same_windows: bool,
    first: Path,
    data: Path,
    tiny_model: Path,
    tiny_mpnet: Path,
    tmp_path: Path,
    commands: Commands,
) -> None:
    store = f"sqlite:///{tmp_path}/mlflow.db"
    model = tiny_model if has_same_windows else tiny_mpnet
    command = ["answer", "--data", data, "--model", model, "--output", tmp_path / "run"]
    command += ["--profile", "openvino", "--keep-scores", *LONG_ONLY, "--tracking-uri", store]
    result = commands.json(*command, "--against", first, "--max-loss", 0.02)
    recorded = connect(store).get_run(result["run_id"]).data
    (mine, _) = result["against"]["rows"]
    assert recorded.tags["parity.against"] == mine["against"]
    assert recorded.tags["gate.verdict"] == "passed"
    metrics = recorded.metrics
    assert (metrics["changed_answers"], metrics["gate.relative_loss"]) == (mine["changed"], 0)
    assert metrics.get("max_drift") == mine["max_drift"]
    assert ("max_drift" in metrics) == has_same_windows


def test_other_logits_are_seen(
    first: Path, data: Path, tiny_vocab: Path, tmp_path: Path, commands: Commands
) -> None:
    """Of a model with other weights, whose windows are the same."""
    model, shape = joint.build(tiny_models.SHAPE, seed=5), tiny_models.SHAPE
    tiny_models.save(tmp_path, model, shape, tiny_vocab, max_seq_length=32, doc_stride=8)
    options = ("--set", "short_threshold=-9", "--keep-scores", "--against", first)
    command = arguments(tmp_path / "run", data, tmp_path, *options)
    (mine, _) = commands.json(*command)["against"]["rows"]
    assert mine["changed"] == QUESTIONS and mine["max_drift"] > 0.1
    assert f"{QUESTIONS} of {QUESTIONS} answers changed (100.0%)" in commands.out(*command)


def test_a_pipe_is_compared_with_a_run_whose_data_have_moved(
    data: Path, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    old = Path(shutil.copy(data, tmp_path / "old.jsonl"))
    commands.out(*arguments(tmp_path / "first", old, tiny_model, *LONG_ONLY))
    old.unlink()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(data.read_bytes()))
    writer.start()
    against = ("--against", tmp_path / "first")
    command = arguments(tmp_path / "run", pipe, tiny_model, *NOTHING, *against)
    mine, _ = commands.json(*command)["against"]["rows"]
    writer.join()
    assert mine["changed"] == QUESTIONS
    report = ("report", tmp_path / "run", *against, "--data", data)
    assert commands.json(*report)["rows"][0]["changed"] == QUESTIONS


def test_few_lost_answers_are_undecided(
    first: Path, data: Path, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    predictions = read(first / PREDICTIONS)["predictions"]
    scores = [one["long_answer_score"] for one in predictions]
    lowest, second, *_ = sorted(set(scores))
    lost = scores.count(lowest)
    thresholds = f"long_threshold={(lowest + second) / 2},short_threshold=9"
    options = ["--set", thresholds, "--against", first, "--max-loss", 0.2]
    gate = commands.json(*arguments(tmp_path, data, tiny_model, *options))["against"]["gate"]
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
    again = commands.json("report", tmp_path, "--against", first)["gate"]
    assert again == {**gate, "max_loss": None, "verdict": None}
    assert "relative loss of micro-F1" in (tmp_path / "report.html").read_text("utf-8")


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
        differing = [key for key in own if places(own[key]) != places(answers[0][key])]
        assert row["changed"] == len(differing)
        assert row["micro_f1"] == metrics["metrics"]["micro_f1"]
        assert row["windows_per_s"] == metrics["windows_per_s"]
        counts = [question_counts(gold, one) for one in (own, answers[0])]
        assert row["loss"][0] == pytest.approx(relative_loss(*counts).loss)
    assert 0 < rows[runs[1]]["changed"] < rows[runs[2]]["changed"] == QUESTIONS
    assert FinishedRun(first).predictions == answers[0]  # the page is one of its files
    assert "some" in commands.out("report", *runs, "--output", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes().startswith(b"<!DOCTYPE")


def test_without_gold_the_changed_answers_are_told(
    first: Path, data: Path, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    records = map(json.loads, data.read_text("utf-8").splitlines())
    bare = [{key: value for key, value in one.items() if key != "annotations"} for one in records]
    file = nq_records.write_lines(tmp_path / "bare.jsonl", bare)
    for name, options in (("a", LONG_ONLY), ("b", NOTHING)):
        commands.out(*arguments(tmp_path / name, file, tiny_model, *options))
    one, other = commands.json("report", tmp_path / "a", tmp_path / "b")["rows"]
    assert (one["changed"], other["changed"]) == (0, QUESTIONS)
    assert (other["micro_f1"], other["loss"], other["behind"]) == (None, None, None)
    page = (tmp_path / "a" / COMPARISON_PAGE).read_text("utf-8")
    assert page.count('"question":') == QUESTIONS and "micro F1" not in page


def test_the_loss_of_text_gold_is_that_of_the_f1_of_words(
    tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    """All answers together have less than one right word; those of the other run have none."""
    words = ["the", "keeper", "lived", "in", "this", "tower", "for", "twenty", "years"]
    gold = " ".join([*reversed(words), *map(str, range(90))])
    one = {"question": "who lived there", "context": " ".join(words), "answer": gold}
    file = nq_records.write_lines(tmp_path / "text.jsonl", [one] * 3)
    for name, threshold in (("a", -9), ("b", 9)):
        options = ("--set", f"short_threshold={threshold}")
        commands.out(*arguments(tmp_path / name, file, tiny_model, *options))
    rows = commands.json("report", tmp_path / "a", tmp_path / "b")["rows"]
    assert [row["loss"] for row in rows] == [[0, 0], [1, 1]]


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
        for one in rows:
            assert one["questions_per_s"] == pytest.approx(QUESTIONS / one["predict_s"])
            assert one["against"].endswith(str(order[0]))


@pytest.mark.parametrize("phase", ["predict_s", "pipeline_s"])
def test_a_row_has_the_speed_and_the_seconds_of_its_run(phase: str) -> None:
    time = {"load_s": 1.0, "compile_s": 2.0, "warmup_s": 4.0, phase: 5.0, "rescore_s": 1.0}
    result = {"profile": "mixed", "machine": "2 cores", "time": time, "windows_per_s": 1.6}
    own = row({**result, "windows": 8, "peak_memory_bytes": 0, "metrics": {}})
    assert (own.predict_s, own.windows_per_s, own.first_start_s) == (5.0, 1.6, 7.0)


def test_equal_words_are_equal_answers_of_two_models(tmp_path: Path) -> None:
    record, word = nq_records.simplified(words=40), "landing"
    (example,) = nq.read_examples([nq_records.write_lines(tmp_path / "one.jsonl", [record])])
    found = [number for number, token in enumerate(example.tokens) if token == word]
    one, other = (nq.records.Prediction(7, shorts=(nq.records.Span(i, i + 1),)) for i in found[:2])
    assert _key(example, one, by_text=True) == _key(example, other, by_text=True) == word
    assert _key(example, one, by_text=False) != _key(example, other, by_text=False)
