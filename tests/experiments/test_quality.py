"""The commands that measure quality, limits and speed of everything around the model."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nq
from experiments import (
    benchmark,
    collection,
    decisions,
    quality,
    reading,
    string_match,
    tables,
)
from nq.config import DECISION_RULES, DecisionConfig
from nq.evaluation.official import token_spans
from nq.evaluation.text_match import normalize
from nq.inference.profile import Profile
from nq.inference.rescore import CLOSE, compute_type
from nq.model.folder import ModelFolder
from nq.questions import read_examples
from nq.records import Span
from nq.runs.folder import FinishedRun
from tests.experiments.conftest import RunCommand
from tests.preprocess.synthetic_examples import page
from tests.support.nq_records import write_lines

SAMPLE = nq.bundled_sample()
N = 4


def sample_records(count: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in SAMPLE.read_bytes().splitlines()[:count]]


@pytest.mark.extended
def test_each_decision_rule_has_the_metrics_of_its_own_run(
    tiny_model: Path, tmp_path: Path, run_command: RunCommand
) -> None:
    options = ["--data", SAMPLE, "--model", tiny_model, "--half", "all"]
    rows = run_command(decisions.main, *options)["rows"]
    assert decisions.table({"rows": rows}).count("| `") == len(rows) == len(DECISION_RULES)
    for row in rows:
        own = ModelFolder(tiny_model).settings.decision
        decision = replace(own, rule=str(row.pop("decision")))
        model = nq.Model.open(tiny_model, decision=decision)
        result = nq.run(nq.Job([SAMPLE], model, root=tmp_path))
        assert row == {name: result.metrics[name] for name in row}


@pytest.mark.extended
def test_the_figures_of_a_tuned_model_are_those_of_its_tuning(
    tiny_model: Path, tmp_path: Path, run_command: RunCommand
) -> None:
    tuned = nq.tune([SAMPLE], nq.Model.open(tiny_model), "grappler", output=tmp_path / "tuned")
    options = ["--data", SAMPLE, "--model", tmp_path / "tuned", "--profile", "grappler"]
    (row,) = run_command(quality.main, *options)["rows"]
    assert 0 < row.pop("first_paragraph_long_f1") < 1
    assert row.pop("data") == SAMPLE.stem and 0 <= row.pop("yes_no_auc") <= 1
    assert row == {name: tuned[f"odd_{name}"] for name in row}


@pytest.mark.extended
def test_reading_prints_shares(tiny_model: Path, run_command: RunCommand) -> None:
    options = ["--data", str(SAMPLE), "--model", str(tiny_model), "--half", "all", "--limit"]
    result = run_command(reading.main, *options, 6)
    assert 0 < result["short_questions"] <= result["long_questions"] <= 6
    assert 0 <= result["exact_match_in_gold_block"] <= result["f1_in_gold_block"] <= 1
    assert reading.main([*options, "0"]) != 0


@pytest.mark.extended
def test_an_answer_matches_its_own_text_and_no_other(
    tiny_model: Path, tmp_path: Path, run_command: RunCommand
) -> None:
    rule = DecisionConfig(rule="bert-joint")  # it gives a span for any scores
    settings = replace(ModelFolder(tiny_model).settings, decision=rule)
    model = ModelFolder(tiny_model).copy(tmp_path / "model", settings)
    records = sample_records(N)
    file = write_lines(tmp_path / "data.jsonl", records)
    folder = nq.run([file], model=model, root=tmp_path).folder
    answers = [
        " ".join(map(example.text, token_spans(prediction.shorts)))
        for example, prediction in zip(
            read_examples([file]), FinishedRun(folder).predictions.values(), strict=True
        )
    ]
    first = next(i for i, text in enumerate(answers) if normalize(text))
    for i, record in enumerate(records):
        record["answers"] = ["zzz", f"The {answers[i].upper()}!"] if i == first else ["zzz"]
    write_lines(file, records)
    result = run_command(string_match.main, "--data", file, "--model", model)
    assert (result["questions"], result["matched"], result["share"]) == (N, 1, 1 / N)
    assert result["answered_in_short"] == sum(map(bool, answers))


def test_the_document_of_a_question_lifts_its_blocks(
    tmp_path: Path, run_command: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = ["the moon lake\n\nit is deep"] + [f"how deep is it, deep {n}" for n in range(40)]
    answers = [{"text": "deep", "answer_start": pages[0].index("deep")}]
    record = {"id": 2, "question": "how deep is the moon lake", "answers": answers}
    others = [{"id": 2 * n + 4, "question": "x", "context": page} for n, page in enumerate(pages)]
    data = write_lines(tmp_path / "data.jsonl", [{**record, "context": pages[0]}, *others[1:]])
    result = run_command(collection.main, "--data", data)
    assert result["questions"] == 1
    assert (result["bm25 at 8"], result["bm25 with document at 8"]) == (0.0, 1.0)
    assert collection.main(["--data", str(data), "--half", "odd"]) == 1
    assert "no question has a gold block" in capsys.readouterr().err


def test_the_limits_of_rescore_are_those_of_the_committed_result() -> None:
    path = tables.ROOT / "experiments" / "results" / "rescoring_dev.json"
    rows = json.loads(path.read_bytes())["result"]["rows"]
    types = [compute_type(Profile(row["profile"]), "CPU") for row in rows]
    assert {*types} <= CLOSE.keys()  # those that the processor which measured has
    for row, type_ in zip(rows, types, strict=True):
        assert row["limit"] == CLOSE[type_] > 1.25 * row["largest_margin"]
        assert row["changed_with_rescore"] == 0


@pytest.mark.extended
def test_all_figures_of_the_benchmark_are_measured(
    tiny_model: Path, tmp_path: Path, run_command: RunCommand
) -> None:
    data = write_lines(tmp_path / "data.jsonl", sample_records(N))
    figures = run_command(benchmark.main, "--data", data, "--model", tiny_model, "--windows", 20)
    assert figures.pop("prediction on disk over in memory, %") > -100
    assert len(figures) == 7 and all(value > 0 for value in figures.values())
    assert {f"peak memory at {n} pages, MB" for n in (N, 10 * N)} <= figures.keys()


def test_the_first_paragraph_is_the_first_with_words() -> None:
    example = page("<Table> a </Table> <P> </P> <P> b c </P> <P> d </P>")
    assert quality.first_paragraph(example) == Span(5, 9)
    assert quality.first_paragraph(page("<Ul> a </Ul>")) is None
