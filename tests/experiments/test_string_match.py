"""The comparison of short answers with gold texts, on real runs of a tiny model."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nq
from experiments.string_match import main
from nq.config import DecisionConfig
from nq.evaluation.text_match import normalize
from nq.model.folder import copy_model, load_settings

pytestmark = pytest.mark.extended

N = 4


def sample_records(count: int) -> list[dict[str, Any]]:
    lines = nq.bundled_sample().read_text(encoding="utf-8").splitlines()[:count]
    return [json.loads(line) for line in lines]


def written(folder: Path, records: list[dict[str, Any]]) -> Path:
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return data


def test_an_answer_matches_its_own_text_and_no_other(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = DecisionConfig(rule="bert-joint")  # it gives a span for any scores
    settings = replace(load_settings(tiny_model), decision=rule)
    model = copy_model(tiny_model, tmp_path / "model", settings)
    records = sample_records(N)
    predictions = nq.run([written(tmp_path, records)], model=model, root=tmp_path).folder
    answers: list[str] = []
    for record, prediction in zip(
        records,
        json.loads((predictions / "predictions.json").read_text())["predictions"],
        strict=True,
    ):
        tokens = record["document_text"].split(" ")
        spans = [(s["start_token"], s["end_token"]) for s in prediction["short_answers"]]
        answers.append(" ".join(" ".join(tokens[a:b]) for a, b in spans if a >= 0))
    first = next(i for i, text in enumerate(answers) if normalize(text))
    for i, record in enumerate(records):
        record["answers"] = ["zzz", f"The {answers[i].upper()}!"] if i == first else ["zzz"]
    data = written(tmp_path, records)
    assert main(["--data", str(data), "--model", str(model), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["questions"], result["matched"], result["share"]) == (N, 1, 1 / N)
    assert result["answered_in_short"] == sum(map(bool, answers))
