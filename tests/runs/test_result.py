"""Tests the result of a run: counts, files, and the table of answers."""

import json
import re
from collections import Counter
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from nq.bundle import bundled_sample
from nq.config import DecisionConfig, TrackingConfig
from nq.errors import Error
from nq.evaluation.answer_files import PREDICTIONS, AnswerRow, table_row
from nq.evaluation.nq_eval import Verdict
from nq.lab.rows import row
from nq.lab.run_page import write_report
from nq.mlflow_store import connect
from nq.model.folder import ModelFolder, ModelSettings, save_settings
from nq.model.model import Model
from nq.questions import read_examples
from nq.records import Annotation, Example, Prediction, Span, YesNo
from nq.report.page import format_seconds
from nq.runs.folder import JOB, METRICS
from nq.runs.job import Job
from nq.runs.result import Result, summary
from nq.runs.run import run
from tests.support.jobs import flat_job, predictions

QUESTIONS = 6


@pytest.mark.slow
@pytest.mark.parametrize(("instances", "kind"), [(None, Error), (None, ValueError), (1, Error)])
def test_a_model_that_changes_while_it_answers_is_an_error(
    instances: int | None, kind: type[Exception], own_model: Path, tmp_path: Path
) -> None:
    """Nothing of the run is kept: a run of the first weights gives their answers."""
    weights = own_model / "model.safetensors"
    if kind is Error:  # else the settings have the digest of the weights
        save_settings(own_model, ModelSettings(Model.open(own_model).windows))
    before = weights.read_bytes()
    profile = "openvino" if instances else "baseline"
    job = make_job(own_model, tmp_path, profile, instances=instances)
    expected = predictions(run(replace(job, output=tmp_path / "first")).folder)
    tensors = {name: -tensor for name, tensor in load_file(weights).items()}
    save_file(tensors, weights)
    with pytest.raises(kind, match=str(own_model)):
        run(job)
    assert not (tmp_path / "run" / METRICS).exists() and not (tmp_path / "run" / JOB).exists()
    weights.write_bytes(before)
    result = run(job)
    assert result.totals.resumed_windows == 0 and predictions(result.folder) == expected


def make_job(model: Path, folder: Path, profile: str = "openvino", **settings: Any) -> Job:
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
    assert result.totals.windows == result.totals.counters.computed_windows > QUESTIONS
    assert result.metrics["long-answer-n"] == QUESTIONS
    assert result.windows_per_s > 0
    zeros = ("resumed_windows", "float32_windows", "rescored", "dead_letters", "without_gold")
    assert {result.to_dict()[name] for name in zeros} == {0}
    assert [row.question for row in result.rows] == [
        example.question for example in read_examples(bundled_sample())
    ][:2]


def test_a_result_has_a_line_a_summary_and_a_table_in_which_all_is_escaped(result: Result) -> None:
    row = AnswerRow("who <b>", "a & b\x1b " + "word " * 90, Verdict.WRONG, ("<i>", ""))
    own = replace(result, folder=Path("<u>"), rows=(row, *result.rows * 6))
    assert re.fullmatch(r"Result\('<u>': 6 questions, .*, profile openvino\)", repr(own))
    counts, table, figures = str(own).split("\n\n")
    assert "<i> | (no words)" in table and "\x1b" not in table
    first, verdicts = counts.split("\n")
    assert first.startswith(f"6 questions, {own.answered} answered, {own.totals.windows} windows")
    assert verdicts.startswith(f"{own.verdicts['right']} right, ")
    html = own._repr_html_()
    assert all(line in unescape(html) for line in [first, verdicts, *figures.split("\n")])
    assert "who &lt;b&gt;" in html and "a &amp; b\\u001b word" in html and "&lt;u&gt;" in html
    assert not re.search("<[biu]>|\x1b", html)
    assert html.count("<tr>") == 11 and html.count("word") < 50


def test_a_wrong_answer_has_the_right_ones_of_its_question(
    tiny_model: Path, tmp_path: Path
) -> None:
    nothing = DecisionConfig(long_threshold=1e9, short_threshold=1e9)
    result = run(make_job(tiny_model, tmp_path, decision=nothing), table_rows=QUESTIONS)
    rows = result.rows
    assert {row.answer for row in rows} == {""}
    assert [(row.verdict, row.expected) for row in rows] == [
        ("missed", ("July 20, 1969", "on July 20, 1969")),
        ("missed", ("Michael Collins",)),
        ("missed", ("NO",)),
        ("null", ()),
        ("missed", ("Friedrich Schiller",)),
        ("missed", ("YES",)),
    ]
    assert result.verdicts == {**dict.fromkeys(map(str, Verdict), 0), "missed": 5, "null": 1}
    assert "0 right, 0 passage, 0 wrong, 0 extra, 5 missed, 1 null" in summary(result)
    shown = str(result).split("\n\n")[1]
    assert (shown.count("null"), shown.count("MISSED")) == (1, 5)


@pytest.mark.slow
def test_a_number_is_the_same_wherever_it_is(tiny_model: Path, tmp_path: Path) -> None:
    """In the result, ``metrics.json``, the page, a row of runs, and the run of MLflow."""
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    anything = DecisionConfig(long_threshold=-1e9, short_threshold=-1e9)
    job = make_job(tiny_model, tmp_path, "buckets+openvino", decision=anything)
    result = run(job, track=TrackingConfig(store), table_rows=QUESTIONS)
    written = json.loads((result.folder / METRICS).read_bytes())
    assert written["verdicts"] == result.verdicts
    assert Counter(row.verdict for row in result.rows) == Counter(result.verdicts)
    assert sum(list(result.verdicts.values())[:4]) == result.answered
    page = write_report(result.folder).page.read_text("utf-8")
    rows = json.loads(page.split('id="json-rows">')[1].split("</script>")[0])
    assert Counter(row["o"][0] for row in rows) == Counter(result.verdicts)
    predict_s = result.measured.time["predict_s"]
    assert result.windows_per_s == pytest.approx(result.totals.windows / predict_s)
    assert (written["windows_per_s"], written["time"]) == (
        result.windows_per_s,
        result.measured.time,
    )
    own = row(written)
    assert (own.windows_per_s, own.predict_s) == (result.windows_per_s, predict_s)
    assert f"<span>prediction</span><b>{format_seconds(predict_s)}</b>" in page
    assert f"predict {predict_s:.1f}" in str(result) or predict_s < 0.05
    recorded = connect(store).get_run(str(result.run_id)).data.metrics
    assert (recorded["windows"], recorded["questions"]) == (result.totals.windows, QUESTIONS)
    assert recorded["windows_per_s"] == pytest.approx(result.windows_per_s, abs=1e-4)
    assert recorded["predict_s"] == pytest.approx(predict_s, abs=1e-4)


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
    for verdict in set(Verdict) - {Verdict.RIGHT, Verdict.NULL}:
        assert table_row(example, wrong, verdict).expected == expected
    right = AnswerRow("how long", "km", Verdict.RIGHT, ())
    assert table_row(example, wrong, Verdict.RIGHT) == right
    assert table_row(example, wrong, None) == AnswerRow("how long", "km", None, ())


def test_answers_have_the_spelling_of_text() -> None:
    words = ["July", "16", ",", "1969", "<Td>", "Tim", "Berners", "-", "Lee", "</Td>"]
    example = Example(1, "who", words, [word[0] == "<" for word in words], ())
    shorts = Span(0, 4), Span(5, 9)
    row = table_row(example, Prediction(1, shorts=shorts), None)
    assert row.answer == "July 16, 1969; Tim Berners-Lee"


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["compiling", "computing"])
def test_a_folder_that_is_removed_during_the_run_stays_removed(
    tiny_model: Path, tmp_path: Path, moment: str
) -> None:
    job = make_job(tiny_model, tmp_path)
    folder = job.output
    assert folder is not None

    def on_phase(phase: str) -> None:
        if phase.startswith(moment):
            folder.rename(tmp_path / "removed")  # at once, while a process writes to it

    with pytest.raises(Error, match=f"{folder} .*removed"):
        run(job, on_phase=on_phase)
    assert run(job).examples == QUESTIONS


def test_blocks_beyond_the_last_context_are_counted(tiny_model: Path, tmp_path: Path) -> None:
    windows = replace(ModelFolder(tiny_model).settings.windows, max_contexts=4)
    job = make_job(tiny_model, tmp_path, windows=windows)
    values = run(job).to_dict()
    unread = [max(0, blocks_with_text(e) - 3) for e in read_examples(job.files)]
    assert values["unread_blocks"] == sum(unread) > 0
    assert values["truncated_pages"] == sum(n > 0 for n in unread)


def blocks_with_text(example: Example) -> int:
    spans = [candidate.span for candidate in example.candidates if candidate.top_level]
    return sum(not all(example.is_html[span.start : span.end]) for span in spans)
