"""Tests the public API: its names, answers equal to those of the commands, threads."""

from __future__ import annotations

import ast
import inspect
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import nq
from nq.runs.result import PREDICTIONS

ROOT = Path(__file__).parent.parent
HTML = """<!doctype html><title>Skerry Point</title><h1>Skerry Point lighthouse</h1>
<p>The lighthouse stands on a rock off the northern coast. It was designed by the engineer
<b>Ada Brenn</b> and first lit on 4 May 1874.</p>
<p>The last keeper, Tom Hale (born 1931), moved to the mainland in 1986.</p>"""
ANSWERS = {
    "who designed the lighthouse": "Ada Brenn",
    "when was it first lit": "4 May 1874",
    "who was the last keeper": "Tom Hale",
}
SAMPLE_METRICS = {"micro_f1": 0.754, "long-answer-f1": 0.877, "short-answer-f1": 0.596}
"""Of the bundled model on the bundled sample; an answer more or less changes them by 0.01."""


@pytest.fixture(scope="module")
def page() -> nq.Page:
    return nq.page_from_html(HTML)


@pytest.fixture(scope="module")
def reader() -> Iterator[nq.Reader]:
    """The bundled model; one window in a batch, since the pages of these tests have one."""
    with nq.load(batch_size=1) as reader:
        yield reader


@pytest.fixture(scope="module")
def sample_run(tmp_path_factory: pytest.TempPathFactory) -> nq.Result:
    """A run of the bundled model over the bundled sample."""
    return nq.run(nq.Job([nq.bundled_sample()], root=tmp_path_factory.mktemp("runs")))


# --- names --------------------------------------------------------------------------------


def test_all_names_are_those_of_the_stub() -> None:
    tree = ast.parse((ROOT / "nq" / "__init__.pyi").read_text(encoding="utf-8"))
    imported = [
        alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assigned = next(node.value for node in tree.body if isinstance(node, ast.Assign))
    assert sorted(imported) == ast.literal_eval(assigned) == sorted(nq.__all__)
    assert set(nq.__all__) <= set(dir(nq))


@pytest.mark.parametrize("name", nq.__all__)
def test_every_name_is_there_with_a_docstring(name: str) -> None:
    member = getattr(nq, name)
    doc = inspect.getdoc(member)
    assert doc and not doc.startswith(f"{name}("), "the docstring is that of dataclass"
    assert doc.split("\n\n")[0].rstrip().endswith(("``.", ".", ":"))
    if inspect.isclass(member):
        for attribute, value in vars(member).items():
            if not attribute.startswith("_") and (
                inspect.isfunction(value) or isinstance(value, property)
            ):
                assert inspect.getdoc(value), f"{name}.{attribute} has no docstring"


def test_other_names_are_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        nq.no_such_name  # type: ignore[attr-defined]  # noqa: B018
    assert nq.__version__.count(".") == 2


# --- answers ------------------------------------------------------------------------------


def test_questions_about_a_page_are_answered(reader: nq.Reader, page: nq.Page) -> None:
    for question, expected in ANSWERS.items():
        answer = reader.ask(question, page)
        assert (answer.short, answer.text, str(answer)) == (expected,) * 3
        assert answer.long and expected in answer.long
        assert 0 < (answer.short_probability or 0) <= (answer.long_probability or 0) < 1
        assert answer.yes_no is nq.YesNo.NONE
        assert answer.question == question and answer.page is page
        assert len(answer.alternatives) == 1  # the page has two blocks


# --- runs ---------------------------------------------------------------------------------


def spans_and_scores(prediction: dict[str, Any]) -> tuple[dict[str, Any], list[float]]:
    spans = {
        name: {k: v for k, v in value.items() if "token" in k} if isinstance(value, dict) else value
        for name, value in prediction.items()
        if not name.endswith("_score")
    }
    return spans, [prediction["long_answer_score"], prediction["short_answers_score"]]


def check_predictions(reader: nq.Reader, result: nq.Result, files: list[Path]) -> None:
    from nq.formats.outputs import encode_prediction

    written = json.loads((result.folder / PREDICTIONS).read_bytes())["predictions"]
    predictions = list(reader.predict(nq.read_examples(files)))
    assert len(predictions) == result.examples
    for prediction, expected in zip(predictions, written, strict=True):
        encoded = json.loads(json.dumps(encode_prediction(prediction)))
        mine, others = spans_and_scores(encoded), spans_and_scores(expected)
        assert mine[0] == others[0]
        assert mine[1] == pytest.approx(others[1], abs=1e-5)
    assert sum(prediction.answered for prediction in predictions) == result.answered


@pytest.mark.slow
def test_the_bundled_model_has_its_known_quality(sample_run: nq.Result) -> None:
    assert sample_run.examples == sample_run.metrics["long-answer-n"] == 40
    for name, expected in SAMPLE_METRICS.items():
        assert sample_run.metrics[name] == pytest.approx(expected, abs=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["baseline", "mixed+prune+rescore"])
def test_predictions_are_those_of_a_run(profile: str, tiny_model: Path, tmp_path: Path) -> None:
    files = [nq.bundled_sample()]
    result = nq.run(nq.Job(files, tiny_model, profile, root=tmp_path))
    with nq.load(tiny_model, profile=profile, batch_size=16) as reader:
        check_predictions(reader, result, files)
    assert nq.evaluate(files, result.folder / PREDICTIONS) == result.metrics


# --- threads and life cycle ---------------------------------------------------------------


def test_a_closed_reader_says_so(tiny_model: Path, page: nq.Page) -> None:
    with nq.load(tiny_model, profile="baseline") as reader:
        assert reader.ask("who", page)
        predictions = reader.predict(list(nq.read_examples(nq.bundled_sample())))
        next(predictions)
    uses: list[Callable[[], object]] = [
        lambda: reader.ask("who", page),
        lambda: reader.predict([]),
        lambda: reader.model,
    ]
    for use in uses:
        with pytest.raises(nq.Error, match=r"the reader is closed: .* nq\.load\(\)"):
            use()
    with pytest.raises(nq.Error, match="the reader is closed"):
        list(predictions)
    reader.close()
    other = nq.load(tiny_model, profile="baseline")
    other.close()
    with pytest.raises(nq.Error, match="the reader is closed"):
        other.ask("who", page)


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
        assert len(closed) == 1 and closed.pop().startswith("the reader is closed")
