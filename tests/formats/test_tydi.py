"""Tests that TyDi QA's byte offsets become spans of tokens, and back, in eleven languages."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.formats.fields import RecordError
from nq.formats.outputs import byte_span
from nq.records import Example, Span, YesNo
from tests.formats.reading import decode_line
from tests.support.nq_records import Record, changed, to_line

START, END = "plaintext_start_byte", "plaintext_end_byte"
TEXTS = {
    "thai": "\nกรุงเทพมหานคร เป็นเมืองหลวง\n\nก่อตั้งปี พ.ศ. 2325 โดย",
    "japanese": "東京タワーは1958年に完成した。\n"
    "高さは333メートル(\uff11\uff10\uff19\uff13フィート)です。",
    "korean": "서울은 1394년부터 대한민국(大韓民國)의 수도이다.",
    "arabic": "وُلِدَ عام ١٩٦٣، في القاهرة؛ بطولتين.",
    "english": "The 19th U.S. president\u2019s iPhone\u00a0costs $1,642.50 e\u0301t\u200dx",
    "chinese": "\U00020000中文abc\U0001d4b3😀👩\u200d🚀",
}


def bytes_of(example: Example, span: Span) -> tuple[int, int]:
    return byte_span(span, example.token_bytes)


def byte_offsets(text: str, part: str) -> Record:
    start = text.encode().index(part.encode())
    return {START: start, END: start + len(part.encode())}


def record(text: str, passages: list[Record], *annotations: Record) -> Record:
    return {
        "example_id": 5,
        "document_plaintext": text,
        "document_title": "Title",
        "question_text": "?",
        "passage_answer_candidates": passages,
        "annotations": list(annotations),
    }


def annotation(passage: int = -1, minimal: Record | None = None, yes_no: str = "NONE") -> Record:
    return {
        "annotation_id": 2**64 - 1,
        "passage_answer": {"candidate_index": passage},
        "minimal_answer": minimal or {START: -1, END: -1},
        "yes_no_answer": yes_no,
    }


def make_record() -> Record:
    text = TEXTS["japanese"]
    first, second = (byte_offsets(text, part) for part in text.split("\n"))
    return record(text, [first, second], annotation(1, byte_offsets(text, "333")), annotation(0))


def decode(record: Record) -> Example:
    return decode_line(to_line(record))


def check_tokens(example: Example, text: str) -> None:
    """Asserts that words are the text of their bytes, in order, with white space between them."""
    data, last = text.encode(), 0
    assert example.token_bytes is not None
    for token, html, (start, end) in zip(
        example.tokens, example.is_html, example.token_bytes.tolist(), strict=True
    ):
        assert start >= last
        assert not data[last:start].decode().strip()
        assert data[start:end].decode() == ("" if html else token)
        assert html or (token and not any(char.isspace() for char in token))
        last = end
    assert not data[last:].decode().strip()


# --- examples -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "answer", "words"),
    [
        ("thai", "พ.ศ. 2325", ["พ", ".", "ศ", ".", "2325"]),
        ("japanese", "\uff11\uff10\uff19\uff13フィート", ["\uff11\uff10\uff19\uff13", "フィート"]),
        ("arabic", "وُلِدَ عام", ["وُلِدَ", "عام"]),
        ("english", "19th U.S.", ["19th", "U", ".", "S", "."]),
    ],
)
def test_answers_are_whole_words(language: str, answer: str, words: list[str]) -> None:
    text = TEXTS[language]
    example = decode(record(text, [], annotation(minimal=byte_offsets(text, answer))))
    check_tokens(example, text)
    (span,) = (example.annotations or ())[0].shorts
    assert list(example.tokens[span.start : span.end]) == words
    assert example.text(span) == answer
    assert bytes_of(example, span) == tuple(byte_offsets(text, answer).values())


# --- bad records --------------------------------------------------------------------------

P, A = "passage_answer_candidates", "annotations.0"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (f"{P}.0.{END}", 999, f"{P}[0] [0, 999) "),
        (f"{P}.0.{END}", 4, f"{P}[0]: byte 4"),
        (f"{A}.passage_answer.candidate_index", 2, "candidate_index"),
        (f"{A}.minimal_answer", {START: 43, END: 44}, "minimal_answer [43, 44)"),
    ],
)
def test_bad_records(path: str, value: Any, expected: str) -> None:
    with pytest.raises(RecordError, match=re.escape(expected)):
        decode(changed(make_record(), path, value))


# --- properties ---------------------------------------------------------------------------

chars = st.one_of(
    st.sampled_from("ab1 \n.,กำเ東ひカー한وఅ్é\u0301\u200d\u200b😀\u3000"),
    st.characters(exclude_categories=["Cs"]),
)
texts = st.one_of(st.text(chars, max_size=40), st.sampled_from(sorted(TEXTS.values())))
fractions = st.floats(0, 1)


@given(
    text=texts,
    cuts=st.lists(st.tuples(fractions, fractions), max_size=5),
    answer=st.tuples(fractions, fractions),
    yes_no=st.sampled_from(YesNo),
)
def test_offsets_become_spans_of_any_text(
    text: str, cuts: list[tuple[float, float]], answer: tuple[float, float], yes_no: YesNo
) -> None:
    def byte(at: float) -> int:
        return len(text[: round(at * len(text))].encode())

    def span(pair: tuple[float, float]) -> tuple[int, int]:
        start, end = sorted(map(byte, pair))
        return start, end

    passages = [span(pair) for pair in cuts]
    minimal = span(answer)
    gold = annotation(len(cuts) - 1, dict(zip((START, END), minimal, strict=True)), yes_no)
    encoded = record(text, [{START: a, END: b} for a, b in passages], gold)
    data = text.encode()
    if not data[minimal[0] : minimal[1]].decode().strip():
        with pytest.raises(RecordError, match="minimal_answer"):
            decode(encoded)
        return
    example = decode(encoded)
    check_tokens(example, text)
    for candidate, (start, end) in zip(example.candidates, passages, strict=True):
        assert bytes_of(example, candidate.span) == ((start, end) if start < end else (-1, -1))
    assert example.annotations is not None
    (short,) = example.annotations[0].shorts
    start, end = bytes_of(example, short)
    inside = data[minimal[0] : minimal[1]].decode().strip()
    assert inside in data[start:end].decode()
    assert example.text(short).replace(" ", "") == "".join(data[start:end].decode().split())
