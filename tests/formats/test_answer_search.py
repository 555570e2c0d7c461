"""Tests where answers are found, against DPR's ``has_answer`` written letter by letter."""

import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.formats.answer_search import AnswerSearch, Place
from nq.records import Span

TEXT = st.text(
    "aAb\u03a3\u03c31é\u00c5\u0301\u212b\u2260.,-_$' \n\t\u00ad\u200b\U0001f600", max_size=12
)


def dpr_tokens(text: str) -> list[str]:
    """Returns the tokens of DPR's SimpleTokenizer: runs of letters, numbers and marks, or signs."""
    tokens, is_open = list[str](), False
    for character in unicodedata.normalize("NFD", text):
        kind = unicodedata.category(character)[0]
        is_letter = kind in "LNM"
        if is_letter and is_open:
            tokens[-1] += character
        elif kind not in "ZC":
            tokens.append(character)
        is_open = is_letter
    return [token.lower() for token in tokens]


def dpr_places(answer: str, text: str) -> Iterator[int]:
    """Yields the index of the first token of each place, as ``has_answer`` compares them."""
    wanted, tokens = dpr_tokens(answer), dpr_tokens(text)
    for i in range(len(tokens) - len(wanted) + 1 if wanted else 0):
        if tokens[i : i + len(wanted)] == wanted:
            yield i


@given(TEXT, TEXT, st.data())
def test_places_are_those_of_has_answer(before: str, after: str, data: st.DataObject) -> None:
    answer = data.draw(st.one_of(TEXT, st.just(before.swapcase())))
    text = f"{before}{answer}{after}"
    places = list(AnswerSearch([text], [[0]]).find(answer))
    assert len(places) == len(list(dpr_places(answer, text)))
    assert {place.span for place in places} <= {Span(0, 1)}
    texts = [before, answer, after]
    apart = list(AnswerSearch(texts, [[0], [1], [2]]).find(answer))
    expected = [Span(n, n + 1) for n, text in enumerate(texts) for _ in dpr_places(answer, text)]
    assert [place.span for place in apart] == expected


@pytest.mark.parametrize(
    ("pieces", "answer", "places"),
    [
        (["in ", "1902"], "19", []),
        (["by ", "J.K. ", "Lind"], "J. K. Lind", [Place(Span(1, 3), True)]),
        (["by ", "J.K. ", "Lind"], "K. Lind", [Place(Span(1, 3), False)]),
        (["1.5 ", "or ", "5 ", "or ", "5,", "000"], "5", [
            Place(Span(0, 1), False), Place(Span(2, 3), True), Place(Span(4, 5), True)
        ]),
        (["at ", "skerry.org"], "Skerry", [Place(Span(1, 2), False)]),
        (["$5 ", "million"], "5", [Place(Span(0, 1), True)]),  # a sign beside it is no word
        (["東", "京", "都"], "東京", [Place(Span(0, 2), True)]),
        (["a", "a", "a"], "a", []),  # one word in three pieces
        (["a ", "a ", "a "], "a a", [Place(Span(0, 2), True), Place(Span(1, 3), True)]),
    ],
)  # fmt: skip
def test_a_place_has_its_pieces(pieces: list[str], answer: str, places: list[Place]) -> None:
    assert list(AnswerSearch(pieces, [range(len(pieces))]).find(answer)) == places


def test_no_answer_is_in_two_texts() -> None:
    search = AnswerSearch(
        ["by ", "Ada ", "Brenn ", "and ", "Ada ", "Brenn"], [[0, 1], [2, 3], [4, 5]]
    )
    assert list(search.find("ada brenn")) == [Place(Span(4, 6), True)]
    assert list(search.find("ada brenn", same_case=True)) == []
    assert list(AnswerSearch([], []).find("a")) == []
