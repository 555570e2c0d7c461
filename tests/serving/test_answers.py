"""Tests that a real server answers as ``nq ask`` and ``nq.Reader`` do, to many clients at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

import nq
from nq.commands.main import console
from nq.formats.outputs import encode_prediction
from nq.serving.schemas import AskAnswer
from tests import nq_records
from tests.serving.running import HTML, PAGE, RunningServer, ask_body, chunked

pytestmark = pytest.mark.slow
CLIENTS = 16
LINES = {"Content-Type": "application/jsonl"}


@pytest.fixture(scope="module")
def reader(tiny_model: Path) -> Iterator[nq.Reader]:
    with nq.load(tiny_model, profile="baseline") as reader:
        yield reader


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
    client: httpx.Client,
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
        response = client.post("/v1/ask", json=ask_body(question, page, top=top, format=kind))
        assert response.status_code == 200, response.text
        check_equal(response.json(), expected)
        AskAnswer.model_validate(response.json())


def test_a_format_overrides_what_the_page_looks_like(client: httpx.Client) -> None:
    tags = "<p>The lake</p> <p>is deep</p>"
    texts = {
        kind: client.post("/v1/ask", json=ask_body(page=tags, format=kind)).json()
        for kind in ("auto", "html", "text")
    }
    assert texts["auto"] == texts["html"] != texts["text"]


def questions() -> list[dict[str, Any]]:
    """Returns requests of several lengths, so that batches have windows of several clients."""
    pages = [" ".join(PAGE.split()[: 3 + 5 * n]) for n in range(8)]
    return [ask_body(f"who was {n} of the lake", page) for page in pages for n in range(3)]


def test_many_clients_at_once_get_the_answers_of_one(
    server: RunningServer, client: httpx.Client
) -> None:
    expected = [client.post("/v1/ask", json=body).json() for body in questions()]
    before = server.metric("nq_batch_windows_count"), server.metric("nq_windows_total")

    def ask_all(number: int) -> list[tuple[int, dict[str, Any]]]:
        order = [(number * 5 + i) % len(expected) for i in range(len(expected))]
        with server.client() as own:
            return [(i, own.post("/v1/ask", json=questions()[i]).json()) for i in order]

    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = [pair for pairs in pool.map(ask_all, range(CLIENTS)) for pair in pairs]
    assert len(answers) == CLIENTS * len(expected)
    for i, answer in answers:
        check_equal(answer, expected[i])
    batches = server.metric("nq_batch_windows_count") - before[0]
    assert batches < len(answers), "no batch has the windows of two clients"
    assert server.metric("nq_windows_total") > before[1]
    assert server.metric("nq_queue_length") == server.metric("nq_requests_in_progress") == 0


def record(text: str, **others: Any) -> dict[str, Any]:
    return {"question": "who", "context": text, **others}


def test_predictions_are_those_of_a_reader_in_order(
    client: httpx.Client, reader: nq.Reader, tmp_path: Path
) -> None:
    records = [nq_records.v1(7), nq_records.simplified(8, 20), record(PAGE)] * 7
    path = nq_records.write_lines(tmp_path / "records.jsonl", records)
    examples, data = list(nq.read_examples(path)), path.read_bytes()
    response = client.post("/v1/predict", content=data, headers=LINES)
    assert response.headers["content-type"] == "application/jsonl"
    answers = [orjson.loads(line) for line in response.content.splitlines()]
    expected = [
        encode_prediction(prediction, example.token_bytes, example.original)
        for prediction, example in zip(reader.predict(examples), examples, strict=True)
    ]
    for number, (answer, prediction) in enumerate(zip(answers, expected, strict=True), 1):
        if number % 3 == 0:
            prediction["example_id"] = f"line:{number}"
        check_equal(answer, orjson.loads(orjson.dumps(prediction)))


def test_a_bad_line_is_an_error_line_in_its_place(client: httpx.Client) -> None:
    good = [record(f"lake {n}", id=n) for n in range(40)]
    lines = [orjson.dumps(line) for line in good]
    bad = {
        3: (b"not json", "not JSON"),
        9: (b"\xff{}", "not UTF-8"),
        12: (orjson.dumps(record("x" * 2_000_001)), "too large: a line of"),
        20: (orjson.dumps(record("lake deep " * 300)), "windows, the limit is 60"),
    }
    for number, (line, _) in bad.items():
        lines[number - 1] = line
    lines[24] = b"   "
    body = b"\xef\xbb\xbf" + b"\r\n".join(lines)
    response = client.post("/v1/predict", content=body, headers=LINES)
    assert response.status_code == 200
    answers = [orjson.loads(line) for line in response.content.splitlines()]
    errors = {answer["line"]: answer["error"] for answer in answers if "error" in answer}
    assert list(errors) == list(bad)
    for number, (_, message) in bad.items():
        assert message in errors[number]
    ids = [answer["example_id"] for answer in answers if "error" not in answer]
    assert ids == [n for n in range(40) if n + 1 not in {*bad, 25}]


def test_the_first_prediction_comes_before_the_second_record_is_sent(
    server: RunningServer,
) -> None:
    first, second = (orjson.dumps(record(f"lake {n}", id=n)) + b"\n" for n in range(2))
    request = chunked("/v1/predict", first, end=False)
    with server.connect() as connection:
        connection.sendall(request)
        received = b""
        while b'"example_id":0' not in received:
            part = connection.recv(4096)
            assert part, received
            received += part
        assert b'"example_id":1' not in received
        connection.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(second), second))
        while part := connection.recv(4096):
            received += part
    assert b'"example_id":1' in received
    assert received.endswith(b"0\r\n\r\n")


def test_large_records_are_answered_like_small_ones(client: httpx.Client) -> None:
    """The server reads no more of a stream until it has answered a large record."""
    padding = "x" * 1_000_000
    lines = [record("the lake", id=n, other=padding * (n % 3 == 0)) for n in range(9)]
    body = b"\n".join(map(orjson.dumps, lines))
    content = client.post("/v1/predict", content=body, headers=LINES).content
    assert [orjson.loads(line)["example_id"] for line in content.splitlines()] == list(range(9))
