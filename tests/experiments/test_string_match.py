"""The comparison of texts, on a real run of a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.string_match import main, normalized
from nq.bundle import bundled_sample
from nq.commands.main import console

N = 4


def answer(tiny_model: Path, folder: Path, records: list[dict[str, Any]]) -> Path:
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    run = folder / "run"
    arguments = ["--data", str(data), "--model", str(tiny_model), "--output", str(run)]
    always = ["--decision", "bert-joint"]  # gives a span, whatever the model says
    assert console(["answer", *arguments, *always, "--no-track", "--json"]) == 0
    return run


def test_what_was_said_matches_itself_and_nothing_else(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = bundled_sample().read_text(encoding="utf-8").splitlines()[:N]
    records: list[dict[str, Any]] = [json.loads(line) for line in lines]
    run = answer(tiny_model, tmp_path, records)
    said: list[str] = []
    for record, found in zip(
        records, json.loads((run / "predictions.json").read_text())["predictions"], strict=True
    ):
        tokens = record["document_text"].split(" ")
        spans = [(s["start_token"], s["end_token"]) for s in found["short_answers"]]
        said.append(" ".join(" ".join(tokens[a:b]) for a, b in spans if a >= 0))
    first = next(i for i, text in enumerate(said) if normalized(text))
    for i, record in enumerate(records):
        record["answers"] = ["zzz", f"The {said[i].upper()}!"] if i == first else ["zzz"]
    again = tmp_path / "again"
    again.mkdir()
    run = answer(tiny_model, again, records)
    capsys.readouterr()
    assert main([str(run), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["questions"], result["matched"], result["share"]) == (N, 1, 1 / N)
    assert result["answered_in_short"] == sum(map(bool, said))


def test_data_without_answers_is_one_line(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = bundled_sample().read_text(encoding="utf-8").splitlines()[0]
    run = answer(tiny_model, tmp_path, [json.loads(line)])
    assert main([str(run)]) == 1
    assert "answers" in capsys.readouterr().err.splitlines()[-1]


@given(st.text())
def test_normalizing_twice_changes_nothing(text: str) -> None:
    assert normalized(normalized(text)) == normalized(text)
