"""Tests the pages of the server in a real browser."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from nq.bundle import bundled_model
from tests.serving.servers import TOKEN, RunningServer, ask_body
from tests.support import document_files
from tests.support.chromium import Browser, needs_chromium

pytestmark = [needs_chromium, pytest.mark.browser, pytest.mark.slow]
QUESTION = "who designed the lighthouse"
TEXT = """😀 The lighthouse stands on a rock off the northern coast. It was designed by the engineer
Ada Brenn and first lit on 4 May 1874.

The last keeper, Tom Hale (born 1931), moved to the mainland in 1986."""
MARKUP = TEXT.replace("rock", "rock</script><script>window.hit = 1</script>").replace(
    "first lit", "<img src=x onerror='window.hit = 1'> first lit"
)
HTML = (
    '<meta charset="iso-8859-2"><h1>Łódź</h1><p>The lighthouse was designed by Ada <b>Brönn</b>'
    " &amp; first lit in 1874.</p><script>window.hit = 1</script><p>Tom Hale was its keeper.</p>"
)
PHONE = 390
FILES = "#files .name"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with the bundled model: the tiny one answers nothing in words."""
    options = ["--batch-size", "1", "--max-windows", "60"]
    folder = tmp_path_factory.mktemp("server")
    with RunningServer(folder, bundled_model(), *options) as running:
        yield running.wait()


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def tab(chromium: Browser, server: RunningServer) -> Browser:
    """The page at /, freshly opened."""
    chromium.new_tab()
    chromium.size(1000)
    chromium.open(f"{server.url}/")
    chromium.run(f"document.getElementById('token').value = '{TOKEN}'")
    return chromium


def fill_in(tab: Browser, page: str) -> None:
    tab.run(f"page.value = {json.dumps(page)}; page.dispatchEvent(new Event('input')); 1")


def ask(tab: Browser) -> None:
    """Asks as a person does, and waits for the result."""
    tab.run(f"question.value = {json.dumps(QUESTION)}; result.replaceChildren()")
    tab.run("document.getElementById('ask').click()")
    tab.wait_for("result.children.length && !document.getElementById('ask').disabled")


def texts(tab: Browser, selector: str) -> list[str]:
    found: list[str] = tab.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)"
    )
    return found


def answered(client: httpx.Client, page: str, **others: Any) -> dict[str, Any]:
    """Returns the answer of the server, which is in words."""
    body = ask_body(QUESTION, page, top=5, **others)
    answer: dict[str, Any] = client.post("/v1/ask", json=body).json()
    assert "Ada" in answer["answer"]
    return answer


def check_shown(tab: Browser, answer: dict[str, Any]) -> None:
    """Checks that the tab shows an answer, marked in its paragraph."""
    long = answer["long_answer"]["text"]
    assert texts(tab, "blockquote") == [long]
    characters = list(long)
    marks = [
        "".join(characters[span["start_in_long"] : span["end_in_long"]])
        for span in answer["short_answers"]
    ]
    assert texts(tab, "blockquote mark") == marks == [s["text"] for s in answer["short_answers"]]
    (headline,) = texts(tab, ".answer")
    assert headline.startswith(f"{answer['answer']} ") and headline.endswith("%")
    names = [other["answer"] or "no short answer" for other in answer["runners_up"]]
    assert texts(tab, "li b") == names


def test_markup_in_a_text_is_shown_and_not_obeyed(
    tab: Browser, client: httpx.Client, server: RunningServer
) -> None:
    answer = answered(client, MARKUP, format="text")
    fill_in(tab, MARKUP)
    ask(tab)
    check_shown(tab, answer)
    assert tab.messages == []
    assert all(url.startswith((server.url, "data:")) for url in tab.urls)
    assert "<script>window.hit = 1</script>" in texts(tab, "blockquote")[0]
    assert tab.run("window.hit === undefined")
    assert tab.run("document.querySelectorAll('#result img, #result script').length") == 0


def give(tab: Browser, files: dict[str, bytes], drop: bool = True, new: int | None = None) -> None:
    """Drops files, or chooses them, and waits until they are read: all are new, or so many."""
    expected = len(texts(tab, FILES)) + (len(files) if new is None else new)
    encoded = {name: base64.b64encode(data).decode() for name, data in files.items()}
    event = "document.dispatchEvent(new DragEvent('drop', {dataTransfer: given, cancelable: true}))"
    if not drop:
        event = "input.files = given.files; input.dispatchEvent(new Event('change'))"
    tab.run(
        "{ const given = new DataTransfer(), input = document.getElementById('file');"
        f"for (const [name, data] of Object.entries({json.dumps(encoded)}))"
        "  given.items.add(new File([Uint8Array.from(atob(data), c => c.charCodeAt(0))], name));"
        f"{event}; }} 1"
    )
    tab.wait_for(f"files.length == {expected}")


@pytest.mark.parametrize("width", [PHONE, 1000])
def test_several_files_and_a_text_are_read(width: int, tab: Browser) -> None:
    tab.size(width)
    long_name = f"{'long' * 30}.md"
    give(tab, {"tower.pdf": document_files.pdf(["The lighthouse was designed by Ada Brenn."])})
    word = document_files.docx("The harbour is old.", table=[["depth", "12 m"]])
    give(tab, {"harbour.docx": word, long_name: b"# Keeper\n\nTom Hale was there."}, drop=False)
    assert texts(tab, FILES) == ["tower.pdf", "harbour.docx", long_name]
    fill_in(tab, "It rains in the town.")
    ask(tab)
    assert texts(tab, ".problem") == []
    assert "Ada Brenn" in texts(tab, ".answer")[0]
    assert texts(tab, "#result h2")[0].startswith("Found in tower.pdf, page 1 ")
    named = " ".join(texts(tab, "li .quiet"))
    assert "harbour.docx" in named and long_name in named
    assert tab.run("document.documentElement.scrollWidth") <= width
    tab.run("document.querySelector('#files button').click()")
    assert texts(tab, FILES) == ["harbour.docx", long_name]
    give(tab, {"harbour.docx": word}, new=0)
    give(tab, {"harbour.docx": b"another one"})
    assert texts(tab, FILES) == [long_name, "harbour.docx", "harbour.docx"]
    tab.run("[...document.querySelectorAll('#files button')].at(-1).click()")
    give(tab, {"table.xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0"})
    ask(tab)
    assert texts(tab, ".problem")[0].startswith("table.xls ")


def test_an_error_is_shown_in_words_and_the_token_is_asked_for(tab: Browser) -> None:
    fill_in(tab, "lake deep " * 6000)
    ask(tab)
    assert " 60:" in texts(tab, ".problem")[0]
    tab.run("page.value = 'the lake'; document.getElementById('token').value = ''; 1")
    assert not tab.run("document.getElementById('token').checkVisibility()")
    ask(tab)
    assert "Authorization" in texts(tab, ".problem")[0]
    assert tab.run("document.getElementById('token').checkVisibility()")
    tab.run(f"document.getElementById('token').value = '{TOKEN}'")
    ask(tab)
    assert texts(tab, ".problem") == []


def test_the_description_at_docs_needs_no_network(tab: Browser, server: RunningServer) -> None:
    tab.open(f"{server.url}/docs")
    tab.wait_for("document.querySelectorAll('.opblock').length >= 4")
    paths = texts(tab, ".opblock-summary-path")
    assert {"/v1/ask", "/healthz", "/readyz", "/metrics"} <= {
        path.replace("\u200b", "") for path in paths
    }
    assert all(url.startswith((server.url, "data:")) for url in tab.urls)
    assert not [message for message in tab.messages if "Content Security Policy" in message]
