"""The rows and details of questions: outcomes, passages, marks, and JSON in a script."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.evaluation.evaluate import example_gold, judge
from nq.evaluation.nq_eval import decisions_of_one
from nq.formats.documents import page_from_record
from nq.records import Annotation, Candidate, Example, Prediction, Span
from nq.report.page import script_json
from nq.report.page_data import Segment, ShownPage, entries, marked, outcomes, scores
from tests.report.examples import ANSWERS, FIRST, PAGE, SECOND, THIRD, annotation, page, question


@pytest.mark.parametrize("outcome", ANSWERS)
def test_rows_and_details_of_each_outcome(outcome: str) -> None:
    one = question(8, outcome)
    row, details = entries(one, [0, 1], 0)
    assert (row["i"], row["o"][1], row["t"]) == ("8", outcome, [0, 1])
    assert row["o"][0] == outcome
    answered = outcome in ("right", "wrong", "extra")
    assert bool(row["a"]) == bool(details["given"]["l"]) == answered
    assert row["e"] == (["b9 b10"] if outcome in ("right", "wrong", "missed") else [])
    assert row["p"] == ([0.04, 0.08, 0.04] if answered else [0.0, 0.0, 0.0])
    assert details["lost"] == ["decision"] * 2 if outcome in ("wrong", "missed") else ["", ""]
    assert details["where"] == "data.jsonl, line 9"


def test_expected_answers_are_those_of_the_table_where_gold_is_text() -> None:
    one = question(8, "wrong")
    row, _ = entries(replace(one, example=replace(one.example, answers=("B9 b10", "nine"))), [0], 0)
    assert row["e"] == ["B9 b10", "nine"]


SHORTS = st.lists(st.sampled_from([Span(9, 11), Span(1, 3)]), max_size=1)
BLOCKS = st.none() | st.sampled_from([FIRST, SECOND])
GOLD = st.lists(st.builds(lambda b, s: annotation(b, *s), BLOCKS, SHORTS), min_size=1, max_size=3)


@given(GOLD, BLOCKS, SHORTS)
def test_the_answer_has_the_verdict_of_the_table_of_answers(
    gold: list[Annotation], long: Span | None, shorts: list[Span]
) -> None:
    example = page(*gold)
    prediction = Prediction(5, long, 0.5, tuple(shorts), 0.25)
    decisions = decisions_of_one(example_gold(example), prediction)
    both = [decision.outcome for decision in decisions]
    assert outcomes(example, prediction) == [judge(example, prediction).verdict, *both]
    assert scores(prediction)[0] == (0.25 if shorts else 0.5)
    assert outcomes(page(), prediction) == ["", "", ""]


@given(st.text(), st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53)))
def test_json_in_a_script_is_read_back_and_cannot_end_it(text: str, values: dict[str, str]) -> None:
    encoded = script_json([text, values])
    assert json.loads(encoded) == [text, values]
    assert not re.search("[<>&]", encoded)


WORDS = st.sampled_from(["<P>", "</P>", "<Td>", "</Td>", "<B>", *"abc", "(", ")", ",", "'s", "-"])
SPANS = st.tuples(st.integers(0, 30), st.integers(1, 30)).map(lambda x: Span(x[0], x[0] + x[1]))


def example(tokens: list[str]) -> Example:
    html = [token[0] == "<" for token in tokens]
    return replace(PAGE, tokens=tokens, is_html=html, candidates=[Candidate(Span(0, 1), True)])


def plain(segments: list[Segment]) -> str:
    return "".join(x if isinstance(x, str) else x[0] for x in segments)


@given(st.lists(WORDS, min_size=1, max_size=30))
def test_the_text_is_that_of_the_page(tokens: list[str]) -> None:
    page = example([*tokens, "end"])
    span = Span(0, len(page.tokens))
    lines = page_from_record(page).text(span).split("\n")
    spelled = plain(marked(page, span, {})).split("\n")
    assert [line.replace(" ", "") for line in spelled] == [line.replace(" ", "") for line in lines]


@given(st.lists(WORDS, min_size=31, max_size=40), st.lists(SPANS, max_size=4))
def test_marks_divide_the_text_and_nothing_else(tokens: list[str], spans: list[Span]) -> None:
    page, block = example(tokens), Span(0, len(tokens))
    segments = marked(page, block, {"p": spans[:2], "g": spans[2:]})
    assert plain(segments) == plain(marked(page, block, {}))
    words = "".join(
        tokens[i]
        for i in range(len(tokens))
        if not page.is_html[i] and any(s.start <= i < s.end for s in spans if block.contains(s))
    )
    both = "".join(x[0] for x in segments if not isinstance(x, str))
    assert [c for c in both if c not in " |\n\u2013"] == [c for c in words if c not in "\u2013"]


def passages(
    page: ShownPage, longs: list[Span], shorts: list[Span], chars: int
) -> list[int | None]:
    return [p["n"] for p in page.passages({"P": longs}, {"p": shorts}, chars)]


def test_blocks_with_answers_come_first_and_near_ones_next() -> None:
    page = ShownPage(PAGE)
    assert page.blocks == [FIRST, SECOND, THIRD]
    assert passages(page, [SECOND], [], 0) == [2]
    assert passages(page, [], [Span(17, 18)], 0) == [3]
    assert passages(page, [THIRD], [], 40) == [2, 3]
    assert passages(page, [THIRD], [], 1000) == [1, 2, 3]
    assert passages(page, [], [], 1000) == [1, 2, 3]
    assert passages(page, [], [], 0) == []
