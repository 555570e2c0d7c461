"""The charts of a report by their definition, and the outcomes of its rows."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.evaluation.evaluate import example_labels, judge
from nq.evaluation.labels import prediction_label
from nq.evaluation.nq_eval import decisions_of_one
from nq.formats.outputs import encode_prediction
from nq.records import Annotation, Prediction, Span
from nq.report.page import script_json
from nq.report.page_data import entries, outcomes, scores
from tests.report.example_cases import FIRST, SECOND, annotation, page
from tests.report.example_questions import ANSWERS, question


@pytest.mark.parametrize("outcome", ANSWERS)
def test_rows_and_details_of_each_outcome(outcome: str) -> None:
    one = question(8, outcome)
    row, details = entries(one, [0, 1], 0)
    assert (row["i"], row["o"][1], row["t"]) == ("8", outcome, [0, 1])
    assert row["o"][0] == ("right" if outcome == "null" else outcome)
    answered = outcome in ("right", "wrong", "extra")
    assert bool(row["a"]) == bool(details["given"]["l"]) == answered
    assert row["e"] == (["b9 b10"] if outcome in ("right", "wrong", "missed") else [])
    assert row["p"] == ([0.04, 0.08, 0.04] if answered else [0.0, 0.0, 0.0])
    assert details["lost"] == ["decision"] * 2 if outcome in ("wrong", "missed") else ["", ""]
    assert details["where"] == "data.jsonl, line 9"


SHORTS = st.lists(st.sampled_from([Span(9, 11), Span(1, 3)]), max_size=1)
BLOCKS = st.none() | st.sampled_from([FIRST, SECOND])
GOLD = st.lists(st.builds(lambda b, s: annotation(b, *s), BLOCKS, SHORTS), min_size=1, max_size=3)


@given(GOLD, BLOCKS, SHORTS)
def test_the_answer_has_the_verdict_of_the_table_of_answers(
    gold: list[Annotation], long: Span | None, shorts: list[Span]
) -> None:
    example = page(*gold)
    encoded: dict[str, Any] = encode_prediction(Prediction(5, long, 0.5, tuple(shorts), 0.25))
    label = prediction_label(encoded)
    decisions = decisions_of_one(example_labels(example), label)
    both = [decision.outcome for decision in decisions]
    assert outcomes(example, label) == [judge(example, encoded).verdict, *both]
    assert scores(label, decisions)[0] in (0.5, 0.25)
    assert outcomes(page(), label) == ["", "", ""]


@given(st.text(), st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53)))
def test_json_in_a_script_is_read_back_and_cannot_end_it(text: str, values: dict[str, str]) -> None:
    encoded = script_json([text, values])
    assert json.loads(encoded) == [text, values]
    assert not re.search("[<>&]", encoded)
