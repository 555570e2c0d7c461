"""Longer pages: annotations keep their words, and distractors are ranked."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from experiments.distractors import inserted, lengthened, paragraphs, short_answers
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


def test_distractors_share_words_but_no_answer_and_are_from_other_pages() -> None:
    record = nq_records.simplified()
    answer = next(iter(short_answers(record)))
    other = nq_records.simplified(8)
    own, near, far = "<P> who first walked on the moon </P>", "<P> the moon </P>", "<P> lakes </P>"
    other["document_text"] = " ".join([own, near, far, f"<P> moon {answer} </P>"])
    starts = np.cumsum([0, *(len(t.split(" ")) for t in (own, near, far))]).tolist()
    ends = [*starts[1:], len(other["document_text"].split(" "))]
    other["long_answer_candidates"] = [
        {"start_token": a, "end_token": b, "top_level": True}
        for a, b in zip(starts, ends, strict=True)
    ]
    (longer,) = lengthened([record], [record, other], 5)
    added = [p for p in paragraphs(longer) if p not in paragraphs(record)]
    assert added == [near, own]
