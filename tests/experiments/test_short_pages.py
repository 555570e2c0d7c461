"""Tests the pages of few blocks that are cut from longer ones."""

import json

from experiments.distractors import gold_blocks, paragraphs, short_answers, without_gold
from experiments.short_pages import ID_SHIFTS, MOST, short_pages
from experiments.training_data import Record
from nq.bundle import bundled_sample
from nq.evaluation.tuning import FOLDS


def golden(record: Record) -> set[str]:
    """Returns the texts of the blocks that an annotation names."""
    tokens, blocks = record["document_text"].split(" "), record["long_answer_candidates"]
    named = (blocks[i] for i in gold_blocks(record))
    return {" ".join(tokens[b["start_token"] : b["end_token"]]) for b in named}


def test_short_pages_have_blocks_of_the_page_with_and_without_the_answer() -> None:
    lines = bundled_sample().read_text("utf-8").splitlines()
    records = {n: {**json.loads(line), "example_id": n} for n, line in enumerate(lines)}
    answered = {n: one for n, one in records.items() if set() < golden(one) < {*paragraphs(one)}}
    pages = {page["example_id"]: page for page in short_pages(answered.values())}
    assert pages.keys() == {n + shift for n in answered for shift in ID_SHIFTS.values()}
    assert all(shift % (2 * FOLDS) == 0 for shift in ID_SHIFTS.values())
    for n, record in answered.items():
        with_gold, without = (pages[n + ID_SHIFTS[has_gold]] for has_gold in (True, False))
        for page in (with_gold, without):
            assert 1 <= len(paragraphs(page)) <= max(MOST, len(golden(record)))
            assert {*paragraphs(page)} <= {*paragraphs(record)}
        assert golden(with_gold) == golden(record)
        assert short_answers(with_gold) == short_answers(record)
        assert not gold_blocks(without) and not short_answers(without)
        assert {*paragraphs(without_gold(record))} == {*paragraphs(record)} - golden(record)
