"""The bundled sample: up to date, small, well formed, with the answers of its sources."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from experiments import make_sample

Record = dict[str, Any]

LINES = make_sample.SAMPLE.read_text(encoding="utf-8").splitlines()
RECORDS: list[Record] = [json.loads(line) for line in LINES]
each_record = pytest.mark.parametrize("record", RECORDS, ids=lambda r: r["question_text"])


def tokens(record: Record) -> list[str]:
    return str(record["document_text"]).split(" ")


def kind(gold: Record) -> str:
    """Returns the kind of answer of an annotation."""
    if gold["long_answer"]["candidate_index"] == -1:
        return "none"
    if gold["yes_no_answer"] != "NONE":
        return str(gold["yes_no_answer"])
    return {0: "long", 1: "short"}.get(len(gold["short_answers"]), "several")


def test_the_committed_file_is_up_to_date() -> None:
    assert make_sample.main(["--check"]) == 0


@each_record
def test_the_document_is_tokens_and_balanced_tags(record: Record) -> None:
    words = tokens(record)
    assert 250 <= len(words) <= 450
    assert all(words)
    open_: list[str] = []
    for word in words:
        if word.startswith("</"):
            assert open_.pop() == word[2:-1]
        elif word.startswith("<"):
            open_.append(word[1:-1].split("_")[0])
        else:
            assert not re.search(r'[\s"<>]', word)
            assert len(word) == 1 or not re.search(r"[,;:()]$", word)
    assert not open_


@each_record
def test_gold_answers_are_in_a_candidate_the_first_in_a_top_level_one(record: Record) -> None:
    for annotator, gold in enumerate(record["annotations"]):
        long, shorts = gold["long_answer"], gold["short_answers"]
        if kind(gold) == "none":
            assert (long["start_token"], long["end_token"], shorts) == (-1, -1, [])
            assert gold["yes_no_answer"] == "NONE"
            continue
        candidate = record["long_answer_candidates"][long["candidate_index"]]
        assert candidate["top_level"] or annotator > 0
        extent = long["start_token"], long["end_token"]
        assert extent == (candidate["start_token"], candidate["end_token"])
        for short in shorts:
            assert extent[0] < short["start_token"] < short["end_token"] < extent[1]
        assert gold["yes_no_answer"] == "NONE" or not shorts
