"""The data of trainings: blocks that are added to pages leave their annotations."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from experiments.distractors import (
    inserted,
    paragraphs,
)
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
