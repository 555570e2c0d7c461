"""Tests that words cover the text, and that a record's words are joined into readable text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.formats.words import located_words, spellings

TRICKY = st.text(st.sampled_from("aA1.,'\"\u2019-[]() \n\t\x00\u200d\u0301\u0939\u093f\U0001f600"))
INVISIBLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


@given(st.text() | TRICKY)
def test_spellings_join_to_the_text(text: str) -> None:
    spelled = "".join(spelling for _, spelling, *_ in located_words(text))
    assert all(word and not INVISIBLE.search(word) for word, *_ in located_words(text))
    assert INVISIBLE.sub("", spelled) == INVISIBLE.sub("", text)
    assert INVISIBLE.sub(" ", spelled).strip() == INVISIBLE.sub(" ", text).strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Obama's", "Obama 's"),
        ('"The Locket" is', "`` The Locket '' is"),
        ("U.S. A&M of O'Hara", "U.S. A&M of O'Hara"),
        ("$110,000 at FTC.gov.", "$110,000 at FTC.gov ."),
        ("see https://a.org/b?c=d.", "see https://a.org/b?c=d ."),
        ("हिन्दी שלום\u200f!", "हिन्दी שלום \u200f !"),
        ("hello😀👍🏽", "hello 😀 👍🏽"),
        ("在1889年建成\uff0c高330米", "在 1889 年 建 成 \uff0c 高 330 米"),
        ("タワーは塔です", "タ ワ ー は 塔 で す"),
        ("ปี 1889 ที่นี่", "ปี 1889 ที่ นี่"),
        ("서울에 日本don't", "서울에 日 本 do n't"),
        ("\ufb01rst o\ufb03ce", "first office"),
        ("auto\u00admated \u00ad", "automated \u00ad"),
        ("\uff11\uff18\uff18\uff19 ｶﾞ \U0001d400 \ufe8d", "1889 ガ A \u0627"),
    ],
)
def test_words_match_nq(text: str, expected: str) -> None:
    assert " ".join(word for word, *_ in located_words(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Obama's full-time job (1961), it ended.",
        'The 18" record "The Locket" cost $13!',
        "He didn't; 5% did: why?",
    ],
)
def test_spellings_of_a_record_restore_its_text(text: str) -> None:
    tokens = [word for word, *_ in located_words(text.replace('18"', "18"))]
    assert "".join(spellings(tokens, [False] * len(tokens))).strip() == text.replace('18"', "18")


def test_tags_become_line_ends_and_cell_separators() -> None:
    tokens = ["<Table>", "<Tr>", '<Td_colspan="2">', "a", "</Td>", "<Td>", "\x1b[1m", "</Td>"]
    spelled = "".join(spellings(tokens, [t.startswith("<") for t in tokens]))
    assert spelled.split() == ["a", "|", "\ufffd[1m", "|"]
