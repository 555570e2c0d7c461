"""Tests ``nq answer`` with parquet and TyDi QA files and with every output format."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.conftest import Commands
from tests.formats.hugging_face_rows import row, write
from tests.formats.test_tydi import make_record
from tests.nq_records import v1, write_lines

QUESTIONS = 3


@pytest.mark.parametrize("rule", ["default", pytest.param("kisialiou", marks=pytest.mark.slow)])
def test_answers_metrics_and_output_formats_agree(
    rule: str, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    rows = [row(v1(i)) for i in range(QUESTIONS)]
    write(data / "a.parquet", [*rows, rows[0] | {"id": None}], group_rows=2)
    write_lines(data / "b.jsonl.gz", [make_record() | {"example_id": 100}])
    arguments = ["--data", data, "--model", tiny_model, "--output", run, "--no-track"]
    result = commands.json("answer", *arguments, "--formats", "kaggle,nbest", "--decision", rule)
    assert (result["examples"], result["dead_letters"]) == (QUESTIONS + 1, 1)
    assert result["metrics"]["long-answer-n"] == QUESTIONS + 1
    official = json.loads((run / "predictions.json").read_bytes())["predictions"]
    nbest = [json.loads(line) for line in (run / "nbest.jsonl").read_bytes().splitlines()]
    with open(run / "kaggle.csv", newline="", encoding="utf-8") as file:
        kaggle = dict(csv.reader(file))
    assert [p["example_id"] for p in official] == [*range(QUESTIONS), 100]
    for prediction, line in zip(official, nbest, strict=True):
        number, first = prediction["example_id"], line["answers"][0]
        assert line["example_id"] == number
        long, alternative = prediction["long_answer"], first["long_answer"]
        if alternative:
            tokens = alternative["start_token"], alternative["end_token"]
            assert tokens == (long["start_token"], long["end_token"])
            assert kaggle[f"{number}_long"] == "{}:{}".format(*tokens)
            assert "start_byte" in alternative
        else:
            assert long["start_token"] < 0 and kaggle[f"{number}_long"] == ""
        assert first["yes_no_answer"] == prediction["yes_no_answer"]
        assert first["long_score"] == prediction["long_answer_score"]
        assert line["probabilities"] == (rule == "default")
        assert (len(line["answers"]) > 1) <= line["probabilities"]
