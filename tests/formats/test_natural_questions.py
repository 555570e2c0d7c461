"""Tests of two layouts of Natural Questions, and of bad records; ``test_parquet`` has the third."""

import copy
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.formats.fields import RecordError
from nq.records import Span, YesNo
from tests.formats.reading import decode_line
from tests.support import nq_records
from tests.support.nq_records import Record, changed, to_line

LAYOUTS = [nq_records.simplified, nq_records.v1]
each_layout = pytest.mark.parametrize("make", LAYOUTS)
Make = Callable[..., Record]


# --- valid records ------------------------------------------------------------------------


@each_layout
def test_every_field_is_read(make: Make) -> None:
    example = decode_line(to_line(make(number=-5, words=3)))
    assert (example.example_id, example.title) == (-5, "Moon")
    assert example.question == "who first walked on the moon"
    assert " ".join(example.tokens) == (
        "<H1> Moon </H1> <P> the moon landing <Table> cell </Table> </P>"
    )
    is_tag = [token[0] == "<" for token in example.tokens]
    assert list(example.is_html) == is_tag
    assert [(c.span, c.top_level) for c in example.candidates] == [
        (Span(3, 11), True),
        (Span(7, 10), False),
    ]
    first, second = example.annotations or ()
    assert (first.long, first.candidate, first.shorts) == (Span(3, 11), 0, (Span(5, 7),))
    assert (second.long, second.candidate, second.shorts) == (None, None, ())
    assert second.yes_no is YesNo.NONE
    assert (example.token_bytes is None) == (make is nq_records.simplified)
    if example.token_bytes is not None:
        assert example.token_bytes[:2].tolist() == [[0, 4], [5, 9]]
        assert example.token_bytes.dtype == np.int64


def test_simplified_text_is_split_at_single_spaces_only() -> None:
    record = nq_records.simplified() | {"document_text": "<P> a  b\u00a0c\u202fd\te <3 </P>"}
    record |= {"long_answer_candidates": [], "annotations": None, "document_tokens": None}
    example = decode_line(to_line(record))
    assert example.tokens == ["<P>", "a", "", "b\u00a0c\u202fd\te", "<3", "</P>"]
    assert example.is_html == [True, False, False, False, False, True]


@each_layout
def test_fields_may_be_absent(make: Make) -> None:
    nothing: tuple[Any, ...] = (None, [], ...)
    for gold in nothing:
        record = changed(make(), "annotations", gold)
        assert decode_line(to_line(record)).annotations is None
    record = make()
    del record["document_title"], record["long_answer_candidates"][1]["top_level"]
    del record["annotations"][0]["yes_no_answer"]
    del record["annotations"][0]["long_answer"]["candidate_index"]
    record["annotations"][1]["yes_no_answer"] = "yes"
    if make is nq_records.v1:
        del record["question_text"]
        for token in record["document_tokens"]:
            del token["start_byte"], token["end_byte"]
    example = decode_line(to_line(record))
    assert (example.question, example.title) == ("who first walked on the moon", "")
    assert example.candidates[1].top_level and example.token_bytes is None
    assert [a.yes_no for a in example.annotations or ()] == [YesNo.NONE, YesNo.YES]
    assert [a.candidate for a in example.annotations or ()] == [0, None]


@each_layout
def test_a_long_answer_without_index_is_the_candidate_of_its_tokens(make: Make) -> None:
    record = make(words=3)
    answer = record["annotations"][0]["long_answer"]
    for index in (..., -1):
        nested = {"start_token": 3, "end_token": 11, "top_level": False}
        other = changed(copy.deepcopy(record), f"{A}.0.long_answer.candidate_index", index)
        other["long_answer_candidates"].insert(0, nested)
        annotation, _ = decode_line(to_line(other)).annotations or ()
        assert (annotation.long, annotation.candidate) == (Span(3, 11), 1)
    del answer["candidate_index"]
    answer["end_token"] = 9
    with pytest.raises(RecordError, match="candidate_index"):
        decode_line(to_line(record))


@each_layout
def test_python_writes_nan_infinity_and_lone_surrogates(make: Make) -> None:
    line = to_line(
        make(words=3) | {"question_text": "moon \ud800 \\ud800 \U0001f600", "x": float("nan")}
    )
    assert b"\\ud800" in line and b"NaN" in line
    for value in (b"NaN", b"Infinity", b"-Infinity"):
        example = decode_line(line.replace(b"NaN", value))
        assert example.question == "moon \ufffc \\ud800 \U0001f600"
    bad = line.replace(b"NaN", b"1")[:-1] + b"x}"
    with pytest.raises(RecordError, match=f"at character {len(bad) - 1}"):
        decode_line(bad)


# --- bad records --------------------------------------------------------------------------


C, A, T = "long_answer_candidates", "annotations", "document_tokens"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("example_id", 2**70, "64-bit"),
        (f"{C}.1.start_token", ..., f"{C}[1].start_token"),
        (f"{C}.0.end_token", 12, f"{C}[0] [3, 12)"),
        (f"{A}.0.long_answer.candidate_index", 2, "candidate_index"),
        (f"{A}.0.short_answers.0.start_token", 8, f"{A}[0].short_answers[0] [8, 7)"),
        (f"{A}.0.yes_no_answer", "MAYBE" * 10**5, "'MAYBE"),
        (f"{T}.1.end_byte", 2**63, "64"),
    ],
)
@each_layout
def test_bad_fields(make: Make, path: str, value: object, expected: str) -> None:
    if not path.startswith(T) or make is nq_records.v1:
        with pytest.raises(RecordError, match=re.escape(expected)) as caught:
            decode_line(to_line(changed(make(words=3), path, value)))
        assert len(str(caught.value)) < 200


@given(
    st.binary()
    | st.text().map(str.encode)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ).map(to_line)
)
def test_any_line_is_an_example_or_a_record_error(line: bytes) -> None:
    with pytest.raises(RecordError):
        decode_line(line)
