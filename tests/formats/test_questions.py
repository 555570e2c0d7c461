"""Tests questions that name their page, a file in a folder."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from nq.config import WindowConfig
from nq.errors import Error
from nq.formats import decoding, inputs
from nq.formats.fields import RecordError
from nq.formats.questions import PageFolder, list_pages
from nq.preprocess.request import Request
from nq.records import Example
from tests.nq_records import write_lines

HTML = "<title>The Tower</title><p>Built in <b>1889</b> by\r\nEiffel &amp; Co.</p>"


@pytest.fixture
def pages(tmp_path: Path) -> PageFolder:
    folder = tmp_path / "pages"
    (folder / "sub").mkdir(parents=True)
    (folder / "tower.html").write_text(HTML, newline="")
    (folder / "Rain.txt").write_text("It rains.\n\nOften.")
    (folder / "sub" / "twice.txt").write_text("One.")
    (folder / "sub" / "twice.htm").write_text("<p>Two.")
    (folder / "empty.txt").write_text(" ")
    (folder / "notes.pdf").write_text("%PDF-1.7")
    (folder / "wrong.txt").write_bytes(b"%PDF-1.7")
    return list_pages(folder)


def decode(pages: PageFolder | None, **fields: Any) -> Example:
    return decoding.decode_record({"id": 1, "question": "when"} | fields, pages=pages)


@pytest.mark.parametrize("name", ["tower.html", "tower", " ./tower.html"])
def test_a_page_is_named_with_or_without_its_suffix(name: str, pages: PageFolder) -> None:
    example = decode(pages, page=name, answer="Eiffel & Co.")
    assert example.title == "The Tower"
    assert example.answers == ("Eiffel & Co.",)
    (answer,) = example.annotations or ()
    assert example.text(answer.shorts[0]) == "Eiffel & Co."
    assert example.original is not None
    place = example.original.place(answer.shorts[0])
    assert place is not None and HTML[slice(*place)] == "Eiffel &amp; Co."


def test_the_text_of_html_is_readable(pages: PageFolder) -> None:
    example = decode(pages, page="tower")
    assert example.text(example.candidates[0].span) == "Built in 1889 by Eiffel & Co."
    example = decode(pages, page="Rain")
    assert [example.text(c.span) for c in example.candidates] == ["It rains.", "Often."]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "missing field 'page'"),
        ({"page": None}, "field 'page' must be a string or an integer, found null"),
        ({"page": " "}, "field 'page' is empty"),
        ({"page": "moon"}, "page 'moon' is none of the 6 pages in"),
        ({"page": "../pages/tower.html"}, "is none of the 6 pages in"),
        ({"page": "/etc/hosts"}, "is none of the 6 pages in"),
        ({"page": "sub/twice"}, "may be twice.htm or twice.txt: give the name with its suffix"),
        ({"page": "empty"}, "empty.txt has no text"),
        ({"page": "wrong"}, "wrong.txt is a PDF document"),
        ({"page": "tower", "answers": [{"text": "1889", "answer_start": 3}]}, "no plain text"),
    ],
)
def test_a_question_without_its_page_has_a_reason(
    fields: dict[str, Any], reason: str, pages: PageFolder
) -> None:
    with pytest.raises(RecordError) as caught:
        decode(pages, **fields)
    assert reason in str(caught.value) and "\n" not in str(caught.value)


def test_a_question_without_pages_says_what_to_give() -> None:
    with pytest.raises(RecordError, match=r"expected a field 'context', or --pages FOLDER and a"):
        decode(None, page="tower")


def test_another_column_may_name_the_page(tmp_path: Path, pages: PageFolder) -> None:
    path = tmp_path / "a.csv"
    path.write_text("Question;Source File\nwhen;tower.html\n")
    named = list_pages(pages.folder, "Source File")
    (example,) = inputs.read_examples(path, pages=named)
    assert example.title == "The Tower"


def test_a_folder_must_have_pages(tmp_path: Path) -> None:
    with pytest.raises(Error, match="is no folder: give the folder of the pages with --pages"):
        list_pages(tmp_path / "nowhere")
    (tmp_path / ".hidden.txt").write_text("x")
    with pytest.raises(Error, match=r"has no pages: expected files that end in .txt"):
        list_pages(tmp_path)


def test_pages_that_no_question_names_are_mentioned(
    tmp_path: Path, pages: PageFolder, caplog: pytest.LogCaptureFixture
) -> None:
    records = [{"question": "a", "page": name} for name in ("tower", "Rain.txt", "moon")]
    path = write_lines(tmp_path / "a.jsonl", [*records, b"{bad"])
    with caplog.at_level(logging.WARNING):
        inputs.mention_unnamed_pages([str(path)], pages)
    (message,) = caplog.messages
    assert message.startswith("no question names 4 of the 6 pages, such as ")
    inputs.mention_unnamed_pages([str(path)], None)
    assert len(caplog.messages) == 1


def test_equal_requests_have_equal_pages(tmp_path: Path, pages: PageFolder) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"question": "a", "page": "tower"}])

    def request(listed: PageFolder | None) -> Request:
        return Request((str(path),), "", WindowConfig(), tokenizer_sha256="x", pages=listed)

    first = request(pages)
    assert first.description["pages"]["column"] == "page"
    assert len(first.page_digests) == 6
    moved = Path(pages.folder).rename(tmp_path / "moved")
    again = request(list_pages(moved))
    assert first.key == again.key
    assert "pages" not in request(None).description
    assert len({request(None).key, again.key, request(list_pages(moved, "x")).key}) == 3
    (moved / "tower.html").write_text("<p>Other")
    os.utime(moved / "tower.html", ns=(1, 1))
    assert request(list_pages(moved)).key != again.key
    with pytest.raises(Error, match=r"tower.html has changed since this command began"):
        again.check_unchanged()
