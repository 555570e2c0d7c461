"""Tests that the server answers as ``nq ask`` and ``nq.Reader`` do, to many clients at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import nq
from nq.commands.main import console
from nq.formats.outputs import encode_prediction
from nq.inference.load import load_scorer
from nq.inference.profile import Profile
from nq.model.spec import find_model
from nq.reader import checked_scorer
from nq.serving.schemas import AskAnswer
from tests import nq_records
from tests.serving.servers import LINES, PAGE, InProcess, ask_body, record

pytestmark = pytest.mark.slow
HTML = (
    "<!doctype html><title>Lake</title><script>var x = '<p>not text</p>';</script>"
    "<h1>The lake</h1><p>The <b>lake</b> is deep &amp; old.</p><p>Tom was there.</p>"
)


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[InProcess]:
    model = find_model(tiny_model)
    scorer = load_scorer(checked_scorer(model, Profile.parse("baseline"), 8))
    with InProcess(model, scorer, max_windows=60, max_body_mb=2) as server:
        yield server


def predictions(server: InProcess, data: bytes) -> list[Any]:
    response = server.post("/v1/predict", content=data, headers=LINES)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/jsonl"
    return [orjson.loads(line) for line in response.content.splitlines()]


def check_equal(actual: Any, expected: Any) -> None:
    """Checks two JSON values field by field; probabilities may differ by rounding."""
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for name in expected:
            check_equal(actual[name], expected[name])
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            check_equal(one, other)
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, abs=1e-6)
    else:
        assert actual == expected


@pytest.mark.parametrize(
    ("page", "suffix", "question", "top"),
    [
        (PAGE, ".txt", " who \n was\tit ", 0),
        (HTML, ".html", "who", 3),
        ("שלום עולם 😀 lake", ".txt", "מי", 2),
        ("a </script><b>lake</b> & \u2028 deep", ".txt", "</script>", 2),
    ],
)
def test_answers_are_those_of_nq_ask(
    page: str,
    suffix: str,
    question: str,
    top: int,
    server: InProcess,
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / f"page{suffix}"
    path.write_bytes(page.encode())
    options = ["--top", str(top), "--json", "--model", str(tiny_model), "--profile", "baseline"]
    assert console(["ask", question, str(path), *options]) == 0
    expected = json.loads(capsys.readouterr().out)
    for kind in ("auto", {".txt": "text", ".html": "html"}[suffix]):
        body = ask_body(question, page, top=top, format=kind)
        unnamed = server.post("/v1/ask", json=body).json()
        assert unnamed["document"] is None
        body["pages"] = [{"name": str(path), "page": body.pop("page")}]
        response = server.post("/v1/ask", json=body)
        assert response.status_code == 200, response.text
        check_equal(response.json(), expected)
        assert (unnamed["answer"], unnamed["short_answers"]) == (
            response.json()["answer"],
            response.json()["short_answers"],
        )
        AskAnswer.model_validate(response.json())


def test_several_pages_are_answered_as_the_python_api_does(
    server: InProcess, tiny_model: Path
) -> None:
    pages = [PAGE, "The old lake is deep.\n\nTom was there."]
    with nq.load(tiny_model, profile="baseline") as reader:
        expected = reader.ask("who was there", list(pages)).to_dict()
    for sent in (
        [{"page": p} for p in pages],
        [{"name": f"document {n}", "page": p} for n, p in enumerate(pages, 1)],
    ):
        response = server.post("/v1/ask", json={"question": "who was there", "pages": sent})
        assert response.status_code == 200, response.text
        check_equal(response.json(), orjson.loads(orjson.dumps(expected)))
        AskAnswer.model_validate(response.json())
    assert {one["document"] for one in [expected, *expected["runners_up"]]} == {
        "document 1",
        "document 2",
    }


def test_a_format_overrides_what_the_page_looks_like(server: InProcess) -> None:
    bodies = [
        ask_body(page="<p>The lake</p> <p>is deep</p>", format=kind)
        for kind in ("auto", "html", "text")
    ]
    auto, html, text = (answer.json() for answer in server.ask_at_once(bodies))
    assert auto == html != text


def test_many_clients_at_once_get_the_answers_of_one(tiny_model: Path, tiny_mpnet: Path) -> None:
    """A cascade scores more windows than it is sent, and chooses them by the page."""
    words, profile = PAGE.split(), Profile.parse("mixed+prune+rescore")
    pages = [
        "\n\n".join(" ".join(words[n + i : n + i + 4]) for i in range(0, 12, 4)) for n in range(14)
    ]
    models: dict[str, Any] = {"second_model": tiny_mpnet, "read_blocks": 2}
    with nq.load(tiny_model, profile=profile, batch_size=32, **models) as reader:
        expected = [reader.ask("who", nq.page_from_text(page)).to_dict() for page in pages]
    model = find_model(tiny_model, **models)
    scorer = load_scorer(checked_scorer(model, profile, 32))
    with InProcess(model, scorer, batch_size=32) as server:
        answers = server.ask_at_once([ask_body(page=page, format="text") for page in pages * 4])
        batches = server.metric("nq_batch_windows_count")
        assert batches and batches < len(pages), "no batch has the windows of two clients"
        assert server.metric("nq_queue_length") == server.metric("nq_requests_in_progress") == 0
    for answer, one in zip(answers, expected * 4, strict=True):
        check_equal(answer.json(), orjson.loads(orjson.dumps(one)))
    assert len({answer.content for answer in answers}) > len(pages) // 2


def test_predictions_are_those_of_a_reader_in_order(
    server: InProcess, tiny_model: Path, tmp_path: Path
) -> None:
    records = [nq_records.v1(7), nq_records.simplified(8, 20), record(PAGE)] * 7
    path = nq_records.write_lines(tmp_path / "records.jsonl", records)
    examples = list(nq.read_examples(path))
    with nq.load(tiny_model, profile="baseline") as reader:
        expected = [
            orjson.loads(
                orjson.dumps(encode_prediction(prediction, example.token_bytes, example.original))
            )
            for prediction, example in zip(reader.predict(examples), examples, strict=True)
        ]
    for number in range(3, len(expected) + 1, 3):
        expected[number - 1]["example_id"] = f"line:{number}"
    check_equal(predictions(server, path.read_bytes()), expected)


def test_a_bad_line_is_an_error_line_in_its_place(server: InProcess) -> None:
    lines = [orjson.dumps(record(f"lake {n}", id=n)) for n in range(40)]
    bad = {
        3: (b"not json", "not JSON"),
        9: (b"\xff{}", "not UTF-8"),
        12: (orjson.dumps(record("x" * 2_000_001)), "too large: a line of"),
        20: (orjson.dumps(record("lake deep " * 300)), "windows, the limit is 60"),
    }
    for number, (line, _) in bad.items():
        lines[number - 1] = line
    lines[24] = b"   "
    answers = predictions(server, b"\xef\xbb\xbf" + b"\r\n".join(lines))
    errors = {answer["line"]: answer["error"] for answer in answers if "error" in answer}
    assert list(errors) == list(bad)
    for number, (_, message) in bad.items():
        assert message in errors[number]
    ids = [answer["example_id"] for answer in answers if "error" not in answer]
    assert ids == [n for n in range(40) if n + 1 not in {*bad, 25}]


def test_large_records_are_answered_like_small_ones(server: InProcess) -> None:
    """The server reads no more of a stream until it has answered a large record."""
    padding = "x" * 1_000_000
    lines = [record("the lake", id=n, other=padding * (n % 3 == 0)) for n in range(9)]
    answers = predictions(server, b"\n".join(map(orjson.dumps, lines)))
    assert [answer["example_id"] for answer in answers] == list(range(9))
