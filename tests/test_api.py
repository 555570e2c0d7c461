"""Tests the public API: its names, answers equal to those of the commands, threads, bad input."""

from __future__ import annotations

import ast
import inspect
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nq
from nq import extras
from nq.commands.main import console
from nq.report.answer import to_dict
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
SAMPLE_METRICS = {"micro_f1": 0.712, "long-answer-f1": 0.877, "short-answer-f1": 0.508}
"""Of the bundled model on the bundled sample; an answer more or less changes them by 0.01."""
THREADS = 8


@pytest.fixture(scope="module")
def page() -> nq.Page:
    return nq.page_from_html(HTML)


@pytest.fixture(scope="module")
def reader() -> Iterator[nq.Reader]:
    """The bundled model; one window in a batch, since the pages of these tests have one."""
    with nq.load(batch_size=1) as reader:
        yield reader


@pytest.fixture(scope="module")
def tiny_reader(tiny_model: Path) -> Iterator[nq.Reader]:
    with nq.load(tiny_model, profile="baseline") as reader:
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


@pytest.mark.slow
def test_answers_are_those_of_the_command(
    page: nq.Page,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "page.html"
    path.write_text(HTML, encoding="utf-8")
    with nq.load() as reader:
        answers = [to_dict(reader.ask(question, nq.read_page(path))) for question in ANSWERS]
        assert answers == [to_dict(reader.ask(question, page)) for question in ANSWERS]
    first, *_ = ANSWERS
    assert console(["ask", first, str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answers[0]
    questions = "".join(f"{question}\n" for question in ANSWERS).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(questions)))
    assert console(["ask", "--interactive", str(path), "--json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == answers


def test_the_model_is_a_keras_model(reader: nq.Reader) -> None:
    import numpy as np

    rows = np.ones((2, 16), np.int32)
    logits = reader.model({"input_ids": rows, "input_mask": rows, "segment_ids": rows})
    shapes = {name: tuple(value.shape) for name, value in logits.items()}
    assert shapes == {"start_logits": (2, 16), "end_logits": (2, 16), "type_logits": (2, 5)}


def test_a_rule_without_probabilities_gives_answers_without_them(
    tiny_model: Path, page: nq.Page
) -> None:
    decision = nq.DecisionConfig(rule="bert-joint")
    with nq.load(tiny_model, profile="baseline", decision=decision) as reader:
        answer = reader.ask("who designed the lighthouse", page)
        assert answer.short
        assert (answer.long_probability, answer.short_probability) == (None, None)
        assert answer.alternatives == ()


# --- runs ---------------------------------------------------------------------------------


def spans_and_scores(prediction: dict[str, Any]) -> tuple[dict[str, Any], list[float]]:
    spans = {
        name: {k: v for k, v in value.items() if "token" in k} if isinstance(value, dict) else value
        for name, value in prediction.items()
        if not name.endswith("_score")
    }
    return spans, [prediction["long_answer_score"], prediction["short_answers_score"]]


def check_predictions(reader: nq.Reader, result: nq.Result, files: list[Path]) -> None:
    from nq.formats.predictions import encode_prediction

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
def test_predictions_of_the_bundled_model_are_those_of_its_run(sample_run: nq.Result) -> None:
    with nq.load() as reader:
        check_predictions(reader, sample_run, [nq.bundled_sample()])


@pytest.mark.slow
def test_the_command_prints_the_result_of_the_run(
    sample_run: nq.Result, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--root", str(sample_run.folder.parent), "--no-track", "--json"]
    assert console(["answer", *arguments]) == 0
    printed = json.loads(capsys.readouterr().out)
    expected = sample_run.to_dict()
    for name in ("time", "windows_per_s", "peak_memory_bytes"):
        assert printed.pop(name)
        del expected[name]
    assert printed == expected


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["baseline", "mixed+prune+rescore"])
def test_predictions_are_those_of_a_run(profile: str, tiny_model: Path, tmp_path: Path) -> None:
    files = [nq.bundled_sample()]
    result = nq.run(nq.Job(files, tiny_model, profile, root=tmp_path))
    with nq.load(tiny_model, profile=profile, batch_size=16) as reader:
        check_predictions(reader, result, files)
    assert nq.evaluate(files, result.folder / PREDICTIONS) == result.metrics


@pytest.mark.slow
def test_the_evaluation_of_the_files_gives_the_metrics_of_the_run(sample_run: nq.Result) -> None:
    metrics = nq.evaluate([nq.bundled_sample()], sample_run.folder / PREDICTIONS)
    assert metrics == sample_run.metrics


# --- threads and life cycle ---------------------------------------------------------------


def test_threads_get_the_answers_of_a_single_thread(reader: nq.Reader, page: nq.Page) -> None:
    questions = list(ANSWERS)
    expected = [to_dict(reader.ask(question, page)) for question in questions]
    start = threading.Barrier(THREADS)

    def ask(number: int) -> list[dict[str, Any]]:
        start.wait()
        order = [(number + i) % len(questions) for i in range(len(questions))]
        answers = {i: to_dict(reader.ask(questions[i], page)) for i in order}
        return [answers[i] for i in range(len(questions))]

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(ask, range(THREADS))) == [expected] * THREADS


@pytest.mark.slow
def test_threads_may_predict_and_ask_at_once(tiny_reader: nq.Reader, page: nq.Page) -> None:
    examples = list(nq.read_examples(nq.bundled_sample()))[:6]
    expected = list(tiny_reader.predict(examples))
    answer = to_dict(tiny_reader.ask("who", page))

    def work(number: int) -> bool:
        if number % 2:
            return list(tiny_reader.predict(iter(examples))) == expected
        return all(to_dict(tiny_reader.ask("who", page)) == answer for _ in range(4))

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(work, range(THREADS)))


@pytest.mark.slow
def test_readers_of_different_profiles_may_be_used_at_once(
    reader: nq.Reader, page: nq.Page
) -> None:
    profiles = ("baseline", "mixed+grappler", "grappler+frozen")
    readers = [reader, *(nq.load(profile=profile, batch_size=1) for profile in profiles)]

    def ask(one: nq.Reader) -> list[dict[str, Any]]:
        return [to_dict(one.ask(question, page)) for question in ANSWERS]

    expected = [ask(one) for one in readers]
    for answers in expected:
        assert [answer["answer"] for answer in answers] == list(ANSWERS.values())
    probabilities = [[answer["short_probability"] for answer in answers] for answers in expected]
    assert probabilities[1] == pytest.approx(probabilities[0], abs=1e-5)
    assert probabilities[2] != pytest.approx(probabilities[0], abs=1e-5)  # bfloat16
    assert probabilities[3] == pytest.approx(probabilities[0], abs=1e-5)
    with ThreadPoolExecutor(len(readers)) as pool:
        for _ in range(2):
            assert list(pool.map(ask, readers)) == expected
    for one in readers[1:]:
        one.close()


@pytest.mark.slow
def test_readers_may_be_loaded_in_several_threads(tiny_model: Path, page: nq.Page) -> None:
    def load_and_ask(profile: str) -> str:
        with nq.load(tiny_model, profile=profile) as reader:
            return str(reader.ask("who", page))

    profiles = ["baseline", "grappler", "baseline", "grappler"]
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(load_and_ask, profiles))) == 1


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


# --- bad input ----------------------------------------------------------------------------

EXAMPLE = nq.page_from_text("one").example


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda r, p: r.ask(None, p), "question is None: expected a text"),
        (lambda r, p: r.ask(b"who", p), "question is b'who': expected a text"),
        (lambda r, p: r.ask("", p), "question is '': expected a text that is not empty"),
        (lambda r, p: r.ask(" \n", p), "expected a text that is not empty"),
        (lambda r, p: r.ask("who", HTML), "page is '<!doctype .*: expected one from nq.read_page"),
        (lambda r, p: r.ask("who", None), "page is None: expected one from nq.read_page"),
        (lambda r, p: r.ask("who", p.example), "page is .*: expected one from nq.read_page"),
        (lambda r, p: r.ask("who", p, -1), "top is -1: expected a whole number from 0 on"),
        (lambda r, p: r.ask("who", p, 1.5), "top is 1.5: expected a whole number from 0 on"),
        (lambda r, p: r.ask("who", p, None), "top is None: expected a whole number from 0 on"),
        (lambda r, p: r.unread_blocks(HTML), "page is '<!doctype .*: expected one from nq.read_pa"),
        (lambda r, p: r.predict(None), "examples is None: expected .*nq.read_examples"),
        (lambda r, p: r.predict("dev.jsonl"), "examples is 'dev.jsonl': expected .*nq.read_exam"),
        (lambda r, p: r.predict(EXAMPLE), "examples is .*: expected .*nq.read_examples"),
        (lambda r, p: list(r.predict([p])), "an element of examples is .*: expected an nq.Example"),
        (lambda r, p: list(r.predict(["who"])), "an element of examples is 'who': expected an nq."),
    ],
)
def test_bad_arguments_of_a_reader(
    use: Callable[[nq.Reader, nq.Page], object],
    message: str,
    tiny_reader: nq.Reader,
    page: nq.Page,
) -> None:
    with pytest.raises(ValueError, match=message):
        use(tiny_reader, page)
    assert tiny_reader.ask("who", page)  # the reader still works


SAMPLE = [nq.bundled_sample()]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda nq: nq.load(profile=5), "profile is 5: expected a text such as 'mixed.xla'"),
        (lambda nq: nq.load(profile="fast"), "unknown optimization 'fast'; valid are baseline, or"),
        (lambda nq: nq.load(profile=""), "unknown optimization ''; valid are baseline"),
        (lambda nq: nq.load(profile="mixed+mixed"), "'mixed' is named twice; valid are"),
        (lambda nq: nq.load(profile="int8"), "int8 needs openvino or onnx: TensorFlow has no fast"),
        (lambda nq: nq.load(5), "model is 5: expected the path of a model folder"),
        (lambda nq: nq.load(windows=256), "windows is 256: expected nq.WindowConfig"),
        (
            lambda nq: nq.load(decision="default"),
            "decision is 'default': expected nq.DecisionConfig",
        ),
        (lambda nq: nq.load(batch_size=0), "batch_size is 0: expected a whole number from 1 on"),
        (lambda nq: nq.Job("dev.jsonl"), "files is 'dev.jsonl': expected a list of files"),
        (lambda nq: nq.Job(Path("dev.jsonl")), "files is .*dev.jsonl.*: expected a list of files"),
        (lambda nq: nq.Job(None), "files is None: expected a list of files"),
        (lambda nq: nq.Job([]), r"files is \[\]: expected a list with at least one file"),
        (lambda nq: nq.Job([5]), "found 5 instead of a path; give a str or a pathlib.Path"),
        (lambda nq: nq.Job(SAMPLE, profile=5), "profile is 5: expected a text such as"),
        (lambda nq: nq.Job(SAMPLE, against="fast"), "unknown optimization 'fast'; valid are"),
        (
            lambda nq: nq.Job(SAMPLE, model=b"x"),
            "model is b'x': expected the path of a model folder",
        ),
        (lambda nq: nq.Job(SAMPLE, output=1), "output is 1: expected the path of a folder"),
        (lambda nq: nq.Job(SAMPLE, batch_size="8"), "batch_size is '8': expected a whole number"),
        (lambda nq: nq.Job(SAMPLE, limit=0), "limit is 0: expected a whole number from 1 on"),
        (lambda nq: nq.Job(SAMPLE, workers=-1), "workers is -1: expected a whole number from 1 on"),
        (
            lambda nq: nq.Job(SAMPLE, formats=["xml"]),
            "unknown format xml; known are official, kagg",
        ),
        (lambda nq: nq.Job(SAMPLE, windows={}), "windows is {}: expected nq.WindowConfig"),
        (lambda nq: nq.run("dev.jsonl"), "job is 'dev.jsonl': expected nq.Job"),
        (lambda nq: nq.evaluate(None, "x"), "gold is None: expected a list of files"),
        (lambda nq: nq.evaluate("dev.jsonl", "x"), "gold is 'dev.jsonl': expected a list of files"),
        (lambda nq: nq.evaluate(SAMPLE, None), "found None instead of a path"),
        (lambda nq: nq.evaluate(SAMPLE, SAMPLE[0]), "questions.jsonl: not JSON"),
        (lambda nq: nq.read_page(None), "found None instead of a path; give a str"),
        (
            lambda nq: nq.read_page(SAMPLE[0], "none"),
            "none of the 40 records .* has number or id no",
        ),
        (lambda nq: nq.page_from_text(None), "text is None: expected a str"),
        (lambda nq: nq.page_from_text(" \n"), "the page has no text: found 0 tags .*; give a page"),
        (lambda nq: nq.page_from_html(b"<p>"), "html is b'<p>': expected a str"),
        (
            lambda nq: nq.page_from_html("<p></p>"),
            "the page has no text: .*; give a page with text",
        ),
        (lambda nq: nq.read_examples(None), "found None instead of a path"),
        (lambda nq: nq.WindowConfig(doc_stride=0), "doc_stride must be at least 1, got 0"),
        (
            lambda nq: nq.WindowConfig(doc_stride="8"),
            "doc_stride is '8': expected a value of type in",
        ),
        (lambda nq: nq.DecisionConfig(rule="best"), "unknown decision 'best'; known are default"),
        (
            lambda nq: nq.DecisionConfig(weights=1),
            "weights is 1: expected a value of type RankingWei",
        ),
        (lambda nq: nq.RankingWeights(yes=None), "yes is None: expected a value of type float"),
        (lambda nq: nq.TrainConfig(batch_size=0), "batch_size must be at least 1, got 0"),
        (lambda nq: nq.TrainConfig(epochs="2"), "epochs is '2': expected a value of type float"),
        (lambda nq: nq.TrackingConfig(uri=5), "uri is 5: expected a value of type str"),
    ],
)
def test_bad_arguments(use: Callable[[Any], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        use(nq)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (nq.load, "no model in .*: expected config.json"),
        (lambda folder: nq.load(folder / "nowhere"), "no model in .*nowhere: expected config"),
        (
            lambda folder: nq.run(nq.Job(SAMPLE, folder / "nowhere", root=folder)),
            "no model in .*nowhere: expected config.json",
        ),
        (lambda folder: nq.run(nq.Job([folder / "x.jsonl"])), "no file matches .*x.jsonl; give"),
        (lambda folder: nq.run(nq.Job([folder])), "folder .* has no file ending in .jsonl"),
        (lambda folder: nq.read_page(folder / "x.txt"), "x.txt"),
        (lambda folder: nq.read_examples(folder / "x.jsonl"), "no file matches .*x.jsonl; give"),
        (lambda folder: nq.evaluate([folder / "x"], folder), "no file matches|Is a directory"),
        (lambda folder: nq.evaluate(SAMPLE, folder / "x.json"), "x.json"),
    ],
)
def test_missing_files_and_folders(
    use: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(OSError, match=message):
        use(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rule", ["bert-joint", "kisialiou"])
def test_a_profile_that_the_decision_rule_does_not_support(rule: str, tmp_path: Path) -> None:
    decision = nq.DecisionConfig(rule=rule)
    message = f"decision {rule} has no decision margin: remove prune from the profile"
    with pytest.raises(nq.Error, match=message):
        nq.load(profile="prune", decision=decision)
    with pytest.raises(nq.Error, match=message):
        nq.run(nq.Job(SAMPLE, profile="prune", decision=decision, root=tmp_path))
    assert not list(tmp_path.iterdir())


def test_windows_that_the_model_cannot_read(tiny_model: Path, tmp_path: Path) -> None:
    windows = nq.WindowConfig(max_seq_length=64, doc_stride=8, max_query_length=8)
    with pytest.raises(ValueError, match="32"):
        nq.load(tiny_model, windows=windows)
    with pytest.raises(ValueError, match="32"):
        nq.run(nq.Job(SAMPLE, tiny_model, windows=windows, root=tmp_path, limit=1))


def test_a_profile_to_compare_with_is_checked_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = nq.Job(SAMPLE, against="prune", decision=nq.DecisionConfig("bert-joint"), root=tmp_path)
    with pytest.raises(nq.Error, match="decision bert-joint has no decision margin"):
        nq.run(job)
    monkeypatch.setitem(extras.EXTRAS, "onnx", ("no_such_package",))
    with pytest.raises(nq.Error, match=r"no_such_package is not installed: run pip .*nq\[onnx\]"):
        nq.run(nq.Job(SAMPLE, against="onnx", root=tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_job_is_changed_by_replacing_its_fields() -> None:
    job = nq.Job(SAMPLE, profile="xla+mixed", formats="nbest,kaggle", against="baseline")
    assert (str(job.profile), job.formats, job.keep_scores) == (
        "mixed+xla",
        ("kaggle", "nbest"),
        True,
    )
    assert replace(job, profile="grappler").optimizations == nq.Profile.parse("grappler")
    assert replace(job, batch_size=4).files == job.files == (str(SAMPLE[0]),)
    with pytest.raises(ValueError, match="batch_size is 0"):
        replace(job, batch_size=0)
    assert nq.Job(iter(SAMPLE)).files == job.files


# --- missing packages ---------------------------------------------------------------------

BLOCK = "import os, sys\nfor name in os.environ['MISSING'].split(): sys.modules[name] = None\n"


def run_without(
    packages: str, code: str, folder: Path, *arguments: object
) -> subprocess.CompletedProcess[str]:
    """Runs code in a process, and its child processes, in which packages cannot be imported."""
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
    paths = os.pathsep.join([str(folder / "site"), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "MISSING": packages},
        capture_output=True,
        text=True,
        check=False,
    )


RUN = """
import json, sys, nq
model, output = sys.argv[1:]
job = nq.Job([nq.bundled_sample()], model, "baseline", output=output, limit=3)
result = nq.run(job)
with nq.load(model, profile="baseline") as reader:
    predictions = list(reader.predict(nq.read_examples(nq.bundled_sample())))
    answer = str(reader.ask("who", nq.page_from_text("the lake is deep")))
print(json.dumps([result.examples, len(predictions), answer]))
"""


@pytest.mark.slow
def test_beam_mlflow_and_matplotlib_are_not_needed(tiny_model: Path, tmp_path: Path) -> None:
    packages = "apache_beam mlflow matplotlib openvino nncf onnx onnxruntime"
    done = run_without(packages, RUN, tmp_path, tiny_model, "without")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)[:2] == [3, 40]
    nq.run(nq.Job(SAMPLE, tiny_model, "baseline", output=tmp_path / "with", limit=3))
    for name in (PREDICTIONS, "dead_letters.jsonl", "windows-*/*.tfrecord"):
        (without,) = (tmp_path / "without").glob(name)
        (expected,) = (tmp_path / "with").glob(name)
        assert without.read_bytes() == expected.read_bytes()


@pytest.mark.parametrize(
    ("packages", "code", "message"),
    [
        ("openvino", "nq.load(profile='openvino')", "run pip install 'nq[openvino]'"),
        ("nncf", "nq.load(profile='openvino+int8')", "run pip install 'nq[openvino]'"),
        ("onnxruntime", "nq.load(profile='onnx')", "run pip install 'nq[onnx]'"),
        ("tensorflow", "nq.load()", "pip install 'nq[cpu]'"),
        pytest.param(
            "apache_beam",
            "nq.run(nq.Job([nq.bundled_sample()], workers=2, root='runs'))",
            "run pip install 'nq[beam]'",
            marks=pytest.mark.slow,
        ),
        ("apache_beam", "import nq.preprocess.beam as b; b.MakeWindows", "pip install 'nq[beam]'"),
        (
            "tensorflow",
            "nq.run(nq.Job([nq.bundled_sample()], root='runs'))",
            "pip install 'nq[cpu]'",
        ),
    ],
)
def test_a_missing_package_is_an_error_that_names_the_extra(
    packages: str, code: str, message: str, tmp_path: Path
) -> None:
    handled = f"import nq\ntry:\n    {code}\nexcept nq.Error as error:\n    print(error)"
    done = run_without(packages, handled, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    assert message in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("packages", "arguments", "message"),
    [
        ("openvino", ["answer", "--profile", "openvino"], "run pip install 'nq[openvino]'"),
        ("onnxruntime", ["ask", "who", "-", "--profile", "onnx"], "run pip install 'nq[onnx]'"),
        ("tensorflow", ["answer", "--no-track"], "pip install 'nq[cpu]'"),
        ("tensorflow", ["ask", "who", "-"], "pip install 'nq[cpu]'"),
        ("apache_beam", ["answer", "--no-track", "--workers", "2"], "run pip install 'nq[beam]'"),
    ],
)
def test_a_command_without_a_package_prints_one_line(
    packages: str, arguments: list[str], message: str, tmp_path: Path
) -> None:
    code = "import io, sys; from nq.commands.main import console\n"
    code += "sys.stdin = io.TextIOWrapper(io.BytesIO(b'the lake is deep'))\n"
    code += "sys.exit(console(sys.argv[1:]))"
    done = run_without(packages, code, tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("nq: error: ") and message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_without_mlflow_a_run_is_not_recorded(tiny_model: Path, tmp_path: Path) -> None:
    code = "import sys; from nq.commands.main import console; sys.exit(console(sys.argv[1:]))"
    arguments = ["answer", "--model", tiny_model, "--limit", 1, "--json", "--output", "run"]
    done = run_without("mlflow", code, tmp_path, *arguments)
    assert done.returncode == 0
    assert json.loads(done.stdout)["run_id"] is None
    assert len(done.stderr.splitlines()) == 1
    assert "pip install 'nq[mlflow]'" in done.stderr
