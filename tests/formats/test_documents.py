"""Tests of documents: Markdown, PDF and Word, and of those that cannot be read."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.errors import Error
from nq.formats import fields
from nq.formats.documents import decode_page, page_of
from nq.formats.inputs import read_page
from nq.records import Page
from tests import document_files
from tests.peak_memory import limited_memory

MARKDOWN = """# The *old* lake

The **lake** is [deep](http://example.org/a_b) &amp; old;\r
it has `no_name`, see<br><b>below</b>.

- first item
- second item

1. one

   more of one

| lake | depth |
|---|---|
| Moon | 12 m |

    code = 1

<div><p>In HTML</p></div>

> A quotation.
"""


def blocks(page: Page) -> list[str]:
    return [page.text(c.span) for c in page.example.candidates if c.top_level]


def test_blocks_of_markdown_are_those_that_a_browser_displays() -> None:
    page = decode_page(MARKDOWN.encode(), "page.md")
    assert blocks(page) == [
        "The lake is deep & old; it has no_name, see below.",
        "first item\nsecond item",
        "one\nmore of one",
        "lake | depth\nMoon | 12 m",
        "code = 1",
        "In HTML",
        "A quotation.",
    ]
    assert [page.example.tokens[c.span.start] for c in page.example.candidates if c.top_level] == [
        *("<P>", "<Ul>", "<Ol>", "<Table>", "<P>", "<P>", "<P>")
    ]


parts = st.sampled_from(
    [
        *("lake", "a", "*deep*", "**old**", "`x y`", "[a](b)", "![a](b)", "&amp;", "&", "<b>"),
        *("\n", "\r\n", "\n\n", "# ", "- ", "1. ", "> ", "| a | b |\n|---|---|\n| ", "    ", "```"),
        *("</b>", "<div>", "<!-- a -->", "\\*", "_", "é", "\u2028", "[a]: b", "---\n"),
    ]
)


@given(st.lists(parts, max_size=30).map(" ".join))
def test_words_of_markdown_have_their_places_in_the_text(text: str) -> None:
    try:
        page = page_of(text, "a.md")
    except ValueError as error:
        assert "has no text" in str(error)
        return
    original = page.example.original
    assert original is not None
    for word, (start, end) in zip(page.spelling, original.chars.tolist(), strict=True):
        if start >= 0 and word.strip() != "&":  # which stands for the whole reference
            assert text[start:end] == word.strip()


def test_a_pdf_document_has_paragraphs_and_page_numbers() -> None:
    first = ["The lake is old, and nobody has seen the bot-", "tom of it."]
    last = ["It is deep, as many people say who have been there.", "- so they say"]
    page = decode_page(document_files.pdf([*first, "Tom was the keeper."], [], last), "lake.pdf")
    assert blocks(page) == [
        "The lake is old, and nobody has seen the bottom of it.",
        "Tom was the keeper.",
        "It is deep, as many people say who have been there. - so they say",
    ]
    cited = [page.citation(c.span) for c in page.example.candidates]
    assert [(one["block"], one["page_number"]) for one in cited] == [(1, 1), (2, 1), (3, 3)]
    single = decode_page(document_files.pdf(["Open."], password=""), "a.pdf")
    assert blocks(single) == ["Open."]
    assert single.citation(single.example.candidates[0].span) == {"block": 1, "page_number": 1}
    text = decode_page(b"One.\n\nTwo.", "a.txt")
    assert text.citation(text.example.candidates[1].span) == {"block": 2, "page_number": None}


def test_a_word_document_has_its_paragraphs_and_tables() -> None:
    data = document_files.docx(
        "The lake & more.", "It is <old>.", table=[["lake", "depth"], ["x", "1"]]
    )
    page = decode_page(data, "lake.docx")
    assert blocks(page) == ["The lake & more.", "It is <old>.", "lake\ndepth\nx\n1"]
    assert page.example.tokens[:4] == ["<H1>", "A", "heading", "</H1>"]
    assert page.example.original is None


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.pdf", document_files.pdf(["x"], password="secret"), "with a password: save it without"),
        ("a.pdf", document_files.pdf([], []), r"without text \(2 pages, perhaps scanned\)"),
        ("a.pdf", document_files.pdf(["x"])[:300], "is a PDF document that cannot be read"),
        ("a.pdf", b"It rains.", "is a PDF document that cannot be read"),
        ("a.docx", document_files.docx(), "is a Word document that cannot be read"),
        ("a.md", b"<!-- x -->", "a.md has no text"),
        ("a.xlsx", b"PK\x03\x04" + b"\0" * 26 + b"xl/workbook", "a document of Microsoft Office"),
        ("a.zip", b"PK\x03\x04" + b"\0" * 40, "is an archive: extract the files in it"),
        ("a.txt", b"x" * 2000, "a.txt is larger than 1.0 KiB: divide it into several files"),
        ("a.pdf", b"%PDF-" + b"x" * 4000, "a.pdf is larger than 2.0 KiB"),
    ],
)
def test_a_document_that_cannot_be_read_has_a_reason(
    name: str, data: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "a.docx":  # the checksum of the document is wrong
        start = data.index(b"<w:document")
        data = data[: start + 5] + b"X" + data[start + 6 :]
    monkeypatch.setattr(fields.LIMITS, "bytes", 1024)
    monkeypatch.setattr(fields.LIMITS, "document_bytes", 2048)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message) as error:
        read_page(tmp_path / name)
    assert str(tmp_path / name) in str(error.value) and "\n" not in str(error.value)


def spoilt_docx(xml: str, entries: int = 0) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", xml)
        for i in range(entries):
            archive.writestr(f"word/{i}.xml", "")
    return data.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (spoilt_docx("<w:p/>" * 100_001), "too large: 100001 candidates, the limit is 100000"),
        (spoilt_docx("<x:p>" * 100_001), "too large: 100001 candidates, the limit is 100000"),
        (spoilt_docx("<w:r a=''/>" * 500_000), "too large: more than 800000 XML nodes"),
        (spoilt_docx("<a " + "b='' " * 900_000 + ">"), "too large: more than 800000 XML nodes"),
        (spoilt_docx("<!ENTITY x 'y'><a>"), "too large: .* or entities"),
        (spoilt_docx("<a>" + " " * (33 << 20)), "too large: [0-9]+ bytes"),
        (spoilt_docx("<a>", 10_000), "is an? .* extract|is a document of"),
    ],
)
def test_a_word_document_is_counted_before_it_is_expanded(data: bytes, message: str) -> None:
    assert len(data) < 2 << 20
    with limited_memory(128 << 20), pytest.raises(ValueError, match=f"^a.docx .*{message}"):
        decode_page(data, "a.docx")


def test_pages_of_pdf_are_counted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields.LIMITS, "characters", 100)
    data = document_files.pdf(*[["x" * 40]] * 50)
    with pytest.raises(
        ValueError, match=r"too large: 12\d characters on the page, the limit is 100"
    ):
        decode_page(data, "a.pdf")  # at the third of its 50 pages


def test_a_pdf_document_without_pypdf_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    data = document_files.pdf(["x"])
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(
        Error, match=r"pypdf is not installed: run pip install 'nq-pipeline\[pdf\]'"
    ):
        decode_page(data, "a.pdf")
