"""The comparison of short answers with gold texts, on a real run of a tiny model."""

import json
from pathlib import Path
from typing import Any

import pytest

import nq
from experiments.string_match import main
from nq.config import DecisionConfig
from nq.evaluation.text_match import normalize

pytestmark = pytest.mark.extended

N = 4


def sample_records(count: int) -> list[dict[str, Any]]:
    lines = nq.bundled_sample().read_text(encoding="utf-8").splitlines()[:count]
    return [json.loads(line) for line in lines]


def answer(tiny_model: Path, folder: Path, records: list[dict[str, Any]]) -> Path:
    """Returns the folder of a run; its decision rule gives a span for any scores."""
    folder.mkdir(exist_ok=True)
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    decision = DecisionConfig(rule="bert-joint")
    return nq.run(
        nq.Job([data], nq.find_model(tiny_model, decision=decision), output=folder / "run")
    ).folder


def test_an_answer_matches_its_own_text_and_no_other(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = sample_records(N)
    run = answer(tiny_model, tmp_path, records)
    answers: list[str] = []
    for record, prediction in zip(
        records, json.loads((run / "predictions.json").read_text())["predictions"], strict=True
    ):
        tokens = record["document_text"].split(" ")
        spans = [(s["start_token"], s["end_token"]) for s in prediction["short_answers"]]
        answers.append(" ".join(" ".join(tokens[a:b]) for a, b in spans if a >= 0))
    first = next(i for i, text in enumerate(answers) if normalize(text))
    for i, record in enumerate(records):
        record["answers"] = ["zzz", f"The {answers[i].upper()}!"] if i == first else ["zzz"]
    run = answer(tiny_model, tmp_path / "again", records)
    assert main([str(run), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["questions"], result["matched"], result["share"]) == (N, 1, 1 / N)
    assert result["answered_in_short"] == sum(map(bool, answers))
