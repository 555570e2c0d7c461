"""Tests that the server answers as ``nq ask`` and ``nq.Reader`` do, to many clients at once."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import nq
from nq.inference.load import load_scorer
from nq.inference.profile import Profile
from nq.model.model import Model
from nq.reader import checked_scorer
from nq.serving.schemas import AskAnswer
from tests.conftest import Commands
from tests.serving.servers import PAGE, InProcess, ask_body

pytestmark = pytest.mark.slow
HTML = (
    "<!doctype html><title>Lake</title><script>var x = '<p>not text</p>';</script>"
    "<h1>The lake</h1><p>The <b>lake</b> is deep &amp; old.</p><p>Tom was there.</p>"
)


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[InProcess]:
    model = Model.open(tiny_model)
    scorer = load_scorer(checked_scorer(model, Profile("baseline"), 8))
    with InProcess(model, scorer) as server:
        yield server


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
    commands: Commands,
) -> None:
    path = tmp_path / f"page{suffix}"
    path.write_bytes(page.encode())
    options = ["--top", top, "--model", tiny_model, "--profile", "baseline"]
    expected = commands.json("ask", question, path, *options)
    for kind in ("auto", {".txt": "text", ".html": "html"}[suffix]):
        body = ask_body(question, page, top=top, format=kind)
        unnamed = server.post("/v1/ask", json=body).json()
        assert unnamed["document"] is None
        body["pages"] = [{"name": str(path), "page": body.pop("page")}]
        response = server.post("/v1/ask", json=body)
        assert response.status_code == 200, response.text
        check_equal(response.json(), expected)
        assert all(unnamed[name] == response.json()[name] for name in ("answer", "short_answers"))
        AskAnswer.model_validate(response.json())
    data = base64.b64encode(page.encode()).decode()
    body = {"question": question, "pages": [{"name": str(path), "data": data}], "top": top}
    check_equal(server.post("/v1/ask", json=body).json(), expected)


def test_many_clients_at_once_get_the_answers_of_one(tiny_model: Path, tiny_mpnet: Path) -> None:
    """A cascade scores more windows than it is sent, and chooses them by the page."""
    words, profile = PAGE.split(), Profile("mixed+prune+rescore")
    pages = [
        "\n\n".join(" ".join(words[n + i : n + i + 4]) for i in range(0, 12, 4)) for n in range(14)
    ]
    models: dict[str, Any] = {"ranker": tiny_model, "read_blocks": 2}
    with nq.load(tiny_mpnet, profile=profile, batch_size=32, **models) as reader:
        expected = [reader.ask("who", nq.page_from_text(page)).to_dict() for page in pages]
    model = Model.open(tiny_mpnet, **models)
    scorer = load_scorer(checked_scorer(model, profile, 32))
    with InProcess(model, scorer, batch_size=32) as server:
        answers = server.ask_at_once([ask_body(page=page, format="text") for page in pages * 4])
        batches = server.metric("nq_batch_windows_count")
        assert batches and batches < len(pages), "no batch has the windows of two clients"
        assert server.metric("nq_queue_length") == server.metric("nq_requests_in_progress") == 0
    for answer, one in zip(answers, expected * 4, strict=True):
        check_equal(answer.json(), orjson.loads(orjson.dumps(one)))
    assert len({answer.content for answer in answers}) > len(pages) // 2
