"""Tests the result of a run: counts, files, and the table of answers."""

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from nq.bundle import bundled_sample
from nq.config import DecisionConfig
from nq.evaluation.answers import AnswerRow, table_row
from nq.formats import inputs
from nq.model.folder import load_settings
from nq.records import Annotation, Example, Prediction, Span, YesNo
from nq.runs.job import Job
from nq.runs.result import METRICS, PREDICTIONS, Result
from nq.runs.run import run
from tests.jobs import flat_job

QUESTIONS = 6


def make_job(model: Path, folder: Path, profile: str = "baseline", **settings: Any) -> Job:
    """Returns a job over the first questions of the sample, in a file of their own."""
    data = folder / "data.jsonl"
    lines = bundled_sample().read_bytes().splitlines(keepends=True)[:QUESTIONS]
    data.write_bytes(b"".join(lines))
    return flat_job([data], model, profile, output=folder / "run", batch_size=8, **settings)


@pytest.fixture(scope="module")
def result(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run(make_job(tiny_model, tmp_path_factory.mktemp("result")), table_rows=2)


def test_the_counts_are_those_of_the_files(result: Result) -> None:
    predictions = json.loads((result.folder / PREDICTIONS).read_bytes())["predictions"]
    assert result.examples == len(predictions) == QUESTIONS
    assert result.windows == result.read_windows > QUESTIONS
    assert result.metrics["long-answer-n"] == QUESTIONS
    assert result.windows_per_s > 0
    zeros = ("resumed_windows", "float32_windows", "rescored", "dead_letters", "without_gold")
    assert {getattr(result, name) for name in zeros} == {0}
    assert [row.question for row in result.rows] == [
        example.question for example in inputs.read_examples(bundled_sample())
    ][:2]


def test_a_result_has_a_line_a_summary_and_a_table_in_which_all_is_escaped(result: Result) -> None:
    row = AnswerRow("who <b>", "a & b\x1b " + "word " * 90, False, ("<i>", ""))
    own = replace(result, folder=Path("<u>"), rows=(row, *result.rows * 6))
    assert re.fullmatch(r"Result\('<u>': 6 questions, .*, profile baseline\)", repr(own))
    table, _, summary = str(own).partition("\n\n")
    assert "<i> | (no words)" in table and "\x1b" not in table
    assert summary.startswith(f"6 questions, {own.answered} answered, {own.windows} windows")
    html = own._repr_html_()
    assert all(line in unescape(html) for line in summary.split("\n"))
    assert "who &lt;b&gt;" in html and "a &amp; b\\u001b word" in html and "&lt;u&gt;" in html
    assert not re.search("<[biu]>|\x1b", html)
    assert html.count("<tr>") == 11 and html.count("word") < 50


def test_a_wrong_answer_has_the_right_ones_of_its_question(
    tiny_model: Path, tmp_path: Path
) -> None:
    nothing = DecisionConfig(long_threshold=1e9, short_threshold=1e9)
    rows = run(make_job(tiny_model, tmp_path, decision=nothing), table_rows=QUESTIONS).rows
    assert {row.answer for row in rows} == {""}
    assert [(row.correct, row.expected) for row in rows] == [
        (False, ("July 20, 1969", "on July 20, 1969")),
        (False, ("Michael Collins",)),
        (False, ("NO",)),
        (True, ()),
        (False, ("Friedrich Schiller",)),
        (False, ("YES",)),
    ]


PARAGRAPH, ITEM = Span(0, 8), Span(8, 11)
NONE = Annotation(None, None, (), YesNo.NONE)


def gold(long: Span, *shorts: Span, yes_no: YesNo = YesNo.NONE) -> Annotation:
    return Annotation(long, None, shorts, yes_no)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ([gold(PARAGRAPH, Span(3, 4))], ("25",)),
        ([gold(PARAGRAPH, Span(3, 4)), *[gold(PARAGRAPH, Span(3, 5))] * 2], ("25 km", "25")),
        ([gold(PARAGRAPH, Span(3, 4)), *[gold(PARAGRAPH)] * 2], ("It is 25 km long.",)),
        ([gold(ITEM, yes_no=YesNo.YES)] * 2 + [gold(ITEM, yes_no=YesNo.NO)], ("YES", "NO")),
        ([gold(ITEM, Span(1, 3), Span(9, 10))] * 2 + [NONE] * 3, ("It is; A",)),
        ([gold(ITEM, Span(9, 10)), NONE, NONE, NONE, NONE], ()),
    ],
)
def test_expected_answers_are_those_of_most_annotators_first(
    annotations: list[Annotation], expected: tuple[str, ...]
) -> None:
    words = ["<P>", "It", "is", "25", "km", "long", ".", "</P>", "<P>", "A", "</P>"]
    is_html = [word.startswith("<") for word in words]
    example = Example(1, "how long", words, is_html, (), tuple(annotations))
    wrong = Prediction(1, shorts=(Span(4, 5),))
    assert table_row(example, wrong, False) == AnswerRow("how long", "km", False, expected)
    assert table_row(example, wrong, True) == AnswerRow("how long", "km", True, ())
    assert table_row(example, wrong, None) == AnswerRow("how long", "km", None, ())


def test_answers_have_the_spelling_of_text() -> None:
    words = ["July", "16", ",", "1969", "<Td>", "Tim", "Berners", "-", "Lee", "</Td>"]
    example = Example(1, "who", words, [word[0] == "<" for word in words], ())
    shorts = Span(0, 4), Span(5, 9)
    row = table_row(example, Prediction(1, shorts=shorts), None)
    assert row.answer == "July 16, 1969; Tim Berners-Lee"


def test_blocks_beyond_the_last_context_are_counted(tiny_model: Path, tmp_path: Path) -> None:
    windows = replace(load_settings(tiny_model).windows, max_contexts=4)
    job = make_job(tiny_model, tmp_path, windows=windows)
    result = run(job)
    unread = [max(0, blocks_with_text(e) - 3) for e in inputs.read_examples(job.files)]
    assert result.unread_blocks == sum(unread) > 0
    assert result.truncated_pages == sum(n > 0 for n in unread)
    values = json.loads((result.folder / METRICS).read_bytes())
    assert (values["unread_blocks"], values["truncated_pages"]) == (
        result.unread_blocks,
        result.truncated_pages,
    )


def blocks_with_text(example: Example) -> int:
    spans = [candidate.span for candidate in example.candidates if candidate.top_level]
    return sum(not all(example.is_html[span.start : span.end]) for span in spans)
