"""The data of trainings: longer pages, and pages without an answer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from experiments.distractors import (
    inserted,
    lengthened,
    paragraphs,
    short_answers,
    without_gold,
)
from experiments.long_pages import EVERY, FEWEST, MOST, long_pages
from experiments.recipes import WIKI
from nq.runs.tuning import fold_of
from tests import nq_records

NAMES = ["moon", "lake", "deep", "who", "walked", "on", "first"]
WORDS = st.lists(st.sampled_from(NAMES), max_size=9)


def text_of(record: dict[str, Any], span: dict[str, Any]) -> list[str]:
    words: list[str] = record["document_text"].split(" ")[span["start_token"] : span["end_token"]]
    return words


@given(
    st.lists(WORDS.map(lambda w: " ".join(["<P>", *w, "</P>"])), max_size=4),
    st.lists(WORDS.map(lambda w: " ".join(["<P>", *w, "</P>"])), max_size=4),
)
def test_annotations_keep_their_words(before: list[str], after: list[str]) -> None:
    record = nq_records.simplified()
    longer = inserted(record, before, after)
    assert paragraphs(longer) == [*before, *paragraphs(record), *after]
    for old, new in zip(record["annotations"], longer["annotations"], strict=True):
        assert old["yes_no_answer"] == new["yes_no_answer"]
        long, moved = old["long_answer"], new["long_answer"]
        if long["candidate_index"] < 0:
            assert moved == long
        else:
            assert text_of(longer, moved) == text_of(record, long)
            candidate = longer["long_answer_candidates"][moved["candidate_index"]]
            assert candidate["start_token"] == moved["start_token"]
        for a, b in zip(old["short_answers"], new["short_answers"], strict=True):
            assert text_of(longer, b) == text_of(record, a)


def page(number: int, title: str, blocks: list[str]) -> dict[str, Any]:
    record = {**nq_records.simplified(number), "document_title": title}
    starts = np.cumsum([0, *(len(t.split(" ")) for t in blocks)]).tolist()
    candidates = [
        {"start_token": a, "end_token": b, "top_level": True} for a, b in pairwise(starts)
    ]
    return {**record, "document_text": " ".join(blocks), "long_answer_candidates": candidates}


def test_added_blocks_are_lists_neighbours_and_paragraphs_that_share_words() -> None:
    record = {**nq_records.simplified(), "document_title": "Moon"}
    answer = next(iter(short_answers(record)))
    with_answer = f"<P> moon {answer} </P>"
    lists = [f"<Ul> item {i} </Ul>" for i in range(4)]
    neighbours = [f"<P> crater {i} </P>" for i in range(6)]
    near, far = [f"<P> who first walked {i} </P>" for i in range(20)], ["<P> lakes </P>"] * 3
    others = [
        page(8, "Moon", neighbours),
        page(9, "Other", [with_answer, *far, *near, *lists]),
        page(10, "Wikipedia", ["<P> no article </P>"]),
    ]
    (longer,) = lengthened([record], [record, *others], 8, 8, seed=1)
    added = [p for p in paragraphs(longer) if p not in paragraphs(record)]
    assert len(added) == len(set(added)) == 8
    assert len([p for p in added if p in lists]) == 2
    assert len([p for p in added if p in neighbours]) == 3
    assert len([p for p in added if p in near]) == 3
    assert [longer] == list(lengthened([record], [record, *others], 8, 8, seed=1))
    counts = {
        len(paragraphs(longer)) - len(paragraphs(record))
        for seed in range(20)
        for longer in lengthened([record], [record, *others], 3, 5, seed)
    }
    assert counts == {3, 4, 5}


def test_without_its_gold_block_a_page_keeps_the_others() -> None:
    record = nq_records.simplified()
    gold = {a["long_answer"]["candidate_index"] for a in record["annotations"]} - {-1}
    longer = inserted(record, ["<P> before </P>"], ["<P> behind </P>", "<P> behind </P>"])
    shorter = without_gold(longer)
    assert gold == {0}
    assert paragraphs(shorter) == [text for text in paragraphs(longer) if text.count(" ") == 2]
    assert len(shorter["long_answer_candidates"]) == 3  # none that was in the gold block
    assert [a["long_answer"]["candidate_index"] for a in shorter["annotations"]] == [-1] * len(
        record["annotations"]
    )
    assert not short_answers(shorter)


def test_long_pages_have_ids_of_their_own_in_the_same_half_and_fold() -> None:
    dev = [nq_records.simplified(number) for number in range(60)]
    dev = [{**record, "document_title": "Moon"} for record in dev]
    pool = page(99, "Other", [f"<P> walked {i} </P>" for i in range(200)])
    pages = list(long_pages(dev, [{**pool, "source": WIKI[0]}]))
    for short, long in zip(dev[::EVERY], pages, strict=True):
        assert long["example_id"] != short["example_id"]
        assert fold_of(long["example_id"]) == fold_of(short["example_id"])
        assert FEWEST <= len(paragraphs(long)) <= MOST + len(paragraphs(short))
    answered = [any(a["short_answers"] for a in record["annotations"]) for record in pages]
    assert 0.3 < sum(answered) / len(answered) < 0.7
