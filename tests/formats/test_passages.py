"""Tests questions with a context: their tokens, the places of tokens and answers, and gold."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.formats import decoding
from nq.formats.fields import RecordError
from nq.formats.predictions import char_span
from nq.records import Example, Original, Span, YesNo
from tests.formats.own_data import CONTEXT, placed

TEXT = st.lists(
    st.sampled_from(
        ["Moon", "caf", "e\u0301", "\U0001f469\u200d\U0001f680", "\U0001f600", "full-time"]
    )
    | st.sampled_from(
        ["didn't", '"so"', "U.S.", "L.\r\nFrank", "1,642", "\x00", "\u00a0", "\u2029"]
    )
    | st.sampled_from(
        [" ", "\t", "\n", "\r\n", "\r", "\r\n\r\n", "\n \n", "\ud83d", "日本", "(", ")."]
    )
    | st.text(max_size=4),
    min_size=1,
    max_size=30,
).map("".join)


def decode(**fields: Any) -> Example:
    return decoding.decode_record({"id": 1, "question": "who", "context": CONTEXT} | fields)


def original(example: Example) -> Original:
    assert example.original is not None
    return example.original


def shorts(example: Example) -> list[str]:
    return [example.text(span) for a in example.annotations or () for span in a.shorts]


@given(TEXT, st.data())
def test_places_are_those_of_the_text_in_the_context(text: str, data: st.DataObject) -> None:
    if not re.search(r"[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]", text):
        with pytest.raises(RecordError, match="field 'context' has no words"):
            decode(context=text)
        return
    example = decode(context=text)
    words = [i for i, is_tag in enumerate(example.is_html) if not is_tag]
    chars = original(example).chars[words]
    assert (chars[:, 0] < chars[:, 1]).all() and (chars[:-1, 1] <= chars[1:, 0]).all()
    between = re.sub(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]", "", text)
    assert "".join(text[a:b] for a, b in chars) == between
    assert (original(example).chars[example.is_html] == -1).all()
    first, last = sorted(data.draw(st.sampled_from(words)) for _ in range(2))
    span = Span(first, last + 1)
    start, end = char_span(span, original(example)).values()
    assert text[start:end] == example.text(span) != ""
    # an answer that is given with this place is the same span, whatever its text
    answer = {"text": text[start:end], "answer_start": start}
    assert shorts(decode(context=text, answers=[answer])) == [text[start:end]]


def test_a_context_is_a_page_of_paragraphs() -> None:
    example = decode(title="Skerry", answers=[placed("Tom Hale")])
    assert (example.example_id, example.title, len(example.candidates)) == (1, "Skerry", 2)
    assert [example.tokens[c.span.start] for c in example.candidates] == ["<P>", "<P>"]
    (answer,) = example.annotations or ()
    assert (answer.candidate, answer.long) == (1, example.candidates[1].span)
    assert example.text(example.candidates[1].span).startswith("Its last keeper,\tTom Hale,")
    place = char_span(answer.shorts[0], example.original)
    assert place == {"start_char": CONTEXT.index("Tom"), "end_char": CONTEXT.index("Tom") + 8}


@pytest.mark.parametrize(
    ("gold", "texts", "found"),
    [
        ({"answers": [placed("1986"), placed("4 May 1874")]}, 2, ["1986", "4 May 1874"]),
        ({"answers": [placed("1986"), placed("1986")]}, 1, ["1986", "1986"]),
        ({"answers": {"text": ["1986"], "answer_start": [CONTEXT.index("1986")]}}, 1, ["1986"]),
        ({"answers": {"text": [], "answer_start": []}}, 0, []),
        ({"answers": ["Ada Brenn", "Brenn, Ada"]}, 2, ["Ada Brenn"]),
        ({"answer": "ada brenn"}, 1, ["Ada Brenn"]),
        ({"answer": "it"}, 1, ["it"]),  # the one in the same case
        ({"answer": 1986}, 1, ["1986"]),
        ({"answer": "838"}, 1, ["1838"]),  # extended to the whole word
        ({"answer": "1986", "answer_start": CONTEXT.index("1986")}, 1, ["1986"]),
        ({"answer": "1986", "answer_start": str(CONTEXT.index("1986"))}, 1, ["1986"]),
        ({"answers": '["1986", "Dunmore"]'}, 2, ["1986", "Dunmore"]),  # a cell of CSV
        ({"is_impossible": True, "answers": [placed("1986")]}, 0, []),
        ({"is_impossible": "True"}, 0, []),
    ],
)
def test_gold_is_read_as_text(gold: dict[str, Any], texts: int, found: list[str]) -> None:
    example = decode(**gold)
    assert len(example.answers or ()) == texts
    assert shorts(example) == found
    assert example.annotations


@pytest.mark.parametrize("gold", [{}, {"answer": ""}, {"answers": None}, {"is_impossible": False}])
def test_gold_is_optional(gold: dict[str, Any]) -> None:
    example = decode(**gold)
    assert (example.answers, example.annotations) == (None, None)


def test_an_answer_that_is_not_in_the_context_is_gold_as_text() -> None:
    example = decode(answers=["Paris", "London"])
    assert (example.answers, example.annotations) == (("Paris", "London"), None)


def test_many_answers_that_are_nearly_in_a_page_do_not_take_hours() -> None:
    page = "moon " * 50_000
    answers = [f"moon moon {i}" for i in range(2000)]
    example = decode(context=page, answers=["moon", *answers])
    assert len(shorts(example)) == 100  # of those places enough are kept


def test_yes_and_no_are_no_places() -> None:
    (answer,) = decode(context="No, it is not.", answer="no").annotations or ()
    assert (answer.yes_no, answer.shorts, answer.candidate) == (YesNo.NO, (), 0)
    (answer,) = decode(answer="Yes").annotations or ()
    assert (answer.yes_no, answer.candidate) == (YesNo.YES, None)  # of two paragraphs


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"answers": [placed("Tom Hale", 3)]},
            "lacks an answer: answers[0] is 'Tom Hale', but",
        ),
        ({"answers": [placed("1986", 10**6)]}, "there is ''; correct the place, or leave it out"),
        ({"answers": [{"text": "1986", "answer_start": -4}]}, "the context lacks an answer"),
        ({"answers": [{"text": " ", "answer_start": 3}]}, "there is no word at characters [3, 4)"),
        (
            {"answers": [{"text": "x", "answer_start": 1.5}]},
            "answer_start must be an integer",
        ),
        ({"answers": [{"answer_start": 1}]}, "answers[0].text must be"),
        (
            {"answers": {"text": ["a"], "answer_start": []}},
            "1 texts, but 0 answer_starts",
        ),
        ({"context": " \n"}, "field 'context' has no words"),
        ({"context": 7}, "field 'context' must be a string, found an integer"),
        ({"question": " "}, "field 'question' is empty"),
        ({"question": None}, "field 'question' must be a string, found null"),
        ({"qas": []}, "found several questions in a line ('qas', MRQA)"),
    ],
)
def test_a_bad_record_has_a_reason(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecordError) as caught:
        decode(**fields)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
