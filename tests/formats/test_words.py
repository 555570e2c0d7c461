"""Text and its words: nothing gets lost, and a record's words read as text again."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.formats.words import spelling, words

TRICKY = st.text(st.sampled_from("aA1.,'\"\u2019-[]() \n\t\x00\u200d\u0301\u0939\u093f\U0001f600"))
UNSEEN = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


@given(st.text() | TRICKY)
def test_words_are_the_text_in_order(text: str) -> None:
    spelled = "".join(spelling for _, spelling in words(text))
    assert UNSEEN.sub("", spelled) == UNSEEN.sub("", text)
    assert UNSEEN.sub(" ", spelled).strip() == UNSEEN.sub(" ", text).strip()


@given(st.text() | TRICKY)
def test_a_word_holds_no_blank_and_is_not_empty(text: str) -> None:
    for word, spelled in words(text):
        assert word
        assert not UNSEEN.search(word)
        assert not UNSEEN.search(spelled.removesuffix(" "))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Obama's", "Obama 's"),
        ("it (1961), was", "it ( 1961 ) , was"),
        ("full-time", "full - time"),
        ("1811\u20131873", "1811 -- 1873"),
        ('"The Locket" is', "`` The Locket '' is"),
        ("“so” he\u2019d", "`` so '' he 'd"),
        ("[edit]", "( edit )"),
        ("don't", "do n't"),
        ("U.S. A&M of O'Hara", "U.S. A&M of O'Hara"),
        ("$110,000 at FTC.gov.", "$110,000 at FTC.gov ."),
        ("see https://a.org/b?c=d.", "see https://a.org/b?c=d ."),
        ("हिन्दी שלום\u200f!", "हिन्दी שלום \u200f !"),
        ("hello😀👍🏽", "hello 😀 👍🏽"),
    ],
)
def test_words_are_those_of_nq(text: str, expected: str) -> None:
    assert " ".join(word for word, _ in words(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Obama's full-time job (1961), it ended.",
        'The 18" record "The Locket" cost $13!',
        "He didn't; 5% did: why?",
    ],
)
def test_a_record_reads_as_text(text: str) -> None:
    tokens = [word for word, _ in words(text.replace('18"', "18"))]
    assert "".join(spelling(tokens, [False] * len(tokens))).strip() == text.replace('18"', "18")


def test_tags_are_laid_out_and_never_shown() -> None:
    tokens = ["<Table>", "<Tr>", '<Td_colspan="2">', "a", "</Td>", "<Td>", "\x1b[1m", "</Td>"]
    spelled = "".join(spelling(tokens, [t.startswith("<") for t in tokens]))
    assert spelled.split() == ["a", "|", "\ufffd[1m", "|"]
