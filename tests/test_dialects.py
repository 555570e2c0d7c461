"""Tests ``nq answer`` with parquet and TyDi QA files and with every output format."""

from __future__ import annotations

import csv
import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from nq.bundle import bundled_sample
from nq.commands.main import console
from nq.formats import inputs
from tests.formats.hugging_face_rows import row, write
from tests.formats.test_tydi import make_record
from tests.nq_records import write_lines

QUESTIONS = 3


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with bundled questions as parquet and a TyDi QA record."""
    folder = tmp_path_factory.mktemp("data")
    examples = itertools.islice(inputs.read_examples(bundled_sample()), QUESTIONS)
    rows = [row(replace(example, example_id=i)) for i, example in enumerate(examples)]
    write(folder / "a.parquet", [*rows, rows[0] | {"id": None}], group_rows=2)
    write_lines(folder / "b.jsonl.gz", [make_record() | {"example_id": 100}])
    return folder


@pytest.mark.parametrize("rule", ["default", pytest.param("kisialiou", marks=pytest.mark.slow)])
def test_answers_metrics_and_output_formats_agree(
    rule: str,
    data: Path,
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--data", str(data), "--model", str(tiny_model), "--output", str(tmp_path / "run")]
    arguments += ["--formats", "kaggle,nbest", "--decision", rule, "--no-track", "--json"]
    assert console(["answer", *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["examples"], result["dead_letters"]) == (QUESTIONS + 1, 1)
    assert result["metrics"]["long-answer-n"] == QUESTIONS + 1
    run = tmp_path / "run"
    official = json.loads((run / "predictions.json").read_bytes())["predictions"]
    nbest = [json.loads(line) for line in (run / "nbest.jsonl").read_bytes().splitlines()]
    with open(run / "kaggle.csv", newline="", encoding="utf-8") as file:
        rows = dict(csv.reader(file))
    assert [p["example_id"] for p in official] == [*range(QUESTIONS), 100]
    for prediction, line in zip(official, nbest, strict=True):
        number, first = prediction["example_id"], line["answers"][0]
        assert line["example_id"] == number
        long, alternative = prediction["long_answer"], first["long_answer"]
        assert (long["start_token"] < 0) == (alternative is None) == (rows[f"{number}_long"] == "")
        if alternative:
            assert {k: v for k, v in alternative.items() if k in long and "token" in k} == {
                k: v for k, v in long.items() if "token" in k
            }
            assert (
                rows[f"{number}_long"] == f"{alternative['start_token']}:{alternative['end_token']}"
            )
            assert ("start_byte" in alternative) == (number == 100)
        assert first["yes_no_answer"] == prediction["yes_no_answer"]
        assert first["long_score"] == prediction["long_answer_score"]
        assert line["probabilities"] == (rule == "default")
        assert (len(line["answers"]) > 1) <= line["probabilities"]


def test_tuning_requires_annotations(
    tiny_model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = write_lines(tmp_path / "bare.jsonl", [make_record() | {"annotations": None}])
    assert console(["tune", "--data", str(bare), "--model", str(tiny_model)]) == 1
    assert "no annotations in" in capsys.readouterr().err


def test_an_unknown_output_format_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert console(["answer", "--formats", "xml"]) == 2
    assert "known are official, kaggle, nbest, squad" in capsys.readouterr().err
