"""Tests the public API: its names, answers equal to those of the commands, threads."""

import ast
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nq
from tests.support.child_processes import ROOT

HTML = """<!doctype html><title>Skerry Point</title><h1>Skerry Point lighthouse</h1>
<p>The lighthouse stands on a rock off the northern coast. It was designed by the engineer
<b>Ada Brenn</b> and first lit on 4 May 1874.</p>
<p>The last keeper, Tom Hale (born 1931), moved to the mainland in 1986.</p>"""
ANSWERS = {
    "who designed the lighthouse": "Ada Brenn",
    "when was it first lit": "4 May 1874",
    "who was the last keeper": "Tom Hale",
}
SAMPLE_METRICS = {"micro_f1": 0.733, "long-answer-f1": 0.904, "short-answer-f1": 0.517}
"""Of the bundled models on the bundled sample; an answer more or less changes them by 0.01."""


@pytest.fixture(scope="module")
def page() -> nq.Page:
    return nq.page_from_html(HTML)


def test_all_names_are_those_of_the_stub() -> None:
    tree = ast.parse((ROOT / "nq" / "__init__.pyi").read_text(encoding="utf-8"))
    imported = [
        alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assigned = next(node.value for node in tree.body if isinstance(node, ast.Assign))
    assert sorted(imported) == ast.literal_eval(assigned) == sorted(nq.__all__)
    assert set(nq.__all__) <= set(dir(nq))
    assert len(nq.__all__) < 25


def test_questions_about_a_page_are_answered(page: nq.Page) -> None:
    with nq.load(batch_size=1) as reader:  # the page has one window
        answers = {question: reader.ask(question, page) for question in ANSWERS}
    for question, answer in answers.items():
        expected = ANSWERS[question]
        assert (answer.short, answer.text, str(answer)) == (expected,) * 3
        assert answer.long and expected in answer.long
        assert 0 < (answer.short_probability or 0) <= (answer.long_probability or 0) < 1
        assert answer.yes_no == "NONE"
        assert answer.question == question and answer.page is page
        assert len(answer.alternatives) <= 1  # the page has two blocks


@pytest.mark.slow
def test_the_bundled_model_has_its_known_quality(tmp_path: Path) -> None:
    result = nq.run(nq.Job([nq.bundled_sample()], profile="openvino", root=tmp_path))
    assert result.examples == result.metrics["long-answer-n"] == 40
    for name, expected in SAMPLE_METRICS.items():
        assert result.metrics[name] == pytest.approx(expected, abs=0.005)


def test_a_run_takes_a_file_and_the_settings_of_a_job(tiny_model: Path, tmp_path: Path) -> None:
    result = nq.run(
        nq.bundled_sample(), model=tiny_model, profile="baseline", limit=1, root=tmp_path
    )
    assert result.examples == 1 and result.folder.is_relative_to(tmp_path)


def test_a_reader_may_be_closed_while_others_ask(tiny_model: Path, page: nq.Page) -> None:
    reader = nq.load(tiny_model, profile="baseline")
    expected = str(reader.ask("who", page))
    asked = threading.Event()

    def ask(number: int) -> set[str]:
        results = set()
        for _ in range(200):
            try:
                results.add(str(reader.ask("who", page)))
                asked.set()
            except nq.Error as error:
                return results | {str(error)}
        return results

    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(ask, number) for number in range(4)]
        asked.wait()
        reader.close()
    for result in results:
        closed = {text for text in result.result() if text != expected}
        assert len(closed) == 1 and "closed" in closed.pop()
