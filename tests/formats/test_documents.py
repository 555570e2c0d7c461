"""Tests of documents: Markdown, PDF and Word, and of those that cannot be read."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.formats import fields
from nq.formats.documents import decode_page, page_of
from nq.formats.inputs import read_page
from nq.formats.pdf import paragraphs
from nq.records import Span
from tests.formats.reading import blocks
from tests.support import document_files

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


def test_blocks_of_markdown_are_those_that_a_browser_displays() -> None:
    page = decode_page(MARKDOWN.encode(), "page.md")
    assert blocks(page) == [
        "The old lake\nThe lake is deep & old; it has no_name, see below.",
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
        *("</b>", "<div>", "<!-- a -->", "\\*", "_", "é", "\u2028", "[a]: b", "---\n", "]!", "\0"),
        *("<i hidden>", "</i>", "<style>a", "</style>", '[a](b "a")', "&eacute;", "\\|", "a|"),
        *("\t",),
    ]
)


@given(st.lists(parts, max_size=30).map(" ".join))
def test_words_of_markdown_have_their_places_in_the_text(text: str) -> None:
    try:
        page = page_of(text, "a.md")
    except ValueError as error:
        assert "a.md" in str(error)
        return
    original = page.example.original
    assert original is not None
    for word, (start, end) in zip(page.spelling, original.chars.tolist(), strict=True):
        if start >= 0:
            assert text.replace("\0", "\ufffd")[start:end] == word.strip()


@pytest.mark.parametrize(
    ("first", "second", "n_paragraphs"),
    [
        ("The light was built by the engineer and painter", "Dr. Ada Brenn.", 1),
        ("It was built by Dr.", "Ada Brenn, who was a painter and an engineer of the town.", 1),
        ("It was built.", "Ada Brenn was a painter and an engineer of the whole town.", 2),
        ("Of these there are", "12. Painters, and engineers of the town, and others of it.", 2),
    ],
)
def test_a_line_of_pdf_ends_a_paragraph_with_a_sentence(
    first: str, second: str, n_paragraphs: int
) -> None:
    assert len(paragraphs(f"{first}\n{second}").strip().split("\n\n")) == n_paragraphs


@pytest.mark.parametrize("hyphen", ["-", "\u00ad", "\u2010"])
def test_a_word_that_is_divided_between_lines_of_pdf_is_one_word(hyphen: str) -> None:
    assert "was automated in" in paragraphs(f"It was auto{hyphen}\nmated in 1986.")
    assert "1874" + hyphen in paragraphs(f"from 1874{hyphen}\n1986.")


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


def test_lines_of_pdf_in_a_larger_font_are_apart_from_their_paragraph() -> None:
    headings = ["Lamps of the", "lighthouse", "Workers"]
    first = [
        "The lamps of it were made in Bern, and nobody",
        "has lit them since 1986, as they say.",
    ]
    lines = [*headings[:2], *first, headings[2], "Ada Brenn was the keeper.", "", "So they say"]
    data = document_files.pdf(lines, headings=headings)
    paragraphs = [" ".join(first), "Ada Brenn was the keeper.", "So they say"]
    assert blocks(decode_page(data, "a.pdf")) == [
        "Lamps of the lighthouse",
        paragraphs[0],
        "Workers",
        *paragraphs[1:],
    ]
    plain = decode_page(document_files.pdf(lines, headings=lines), "a.pdf")  # in one size
    assert len(blocks(plain)) < 5


@pytest.mark.parametrize(
    "shown",
    [
        "/Span << /ActualText <FEFF00660069> >> BDC [(x) -20 (y)] TJ EMC",
        "/Span << /ActualText (fi) >> BDC (x) Tj /P BMC (y) Tj EMC (z) Tj EMC",
        "/Span << /ActualText (f) >> BDC (x) Tj EMC /Span << /Lang (en) >> BDC (i) Tj EMC",
        "/Span /MC0 BDC (x) Tj EMC",
        "EMC (fi) Tj",
    ],
)
@pytest.mark.parametrize("is_form", [False, True])
def test_actual_text_of_pdf_replaces_what_is_drawn(shown: str, is_form: bool) -> None:
    names = {"MC0": "fi"}
    data = document_files.pdf_of_content(
        f"BT /F1 11 Tf 72 700 Td (The of) Tj {shown} (ce is old.) Tj ET", names, is_form=is_form
    )
    assert blocks(decode_page(data, "a.pdf")) == ["The office is old."]


def test_words_of_a_word_document_have_no_places() -> None:
    page = decode_page(document_files.docx("The lake & more.", table=[["x", "1"]]), "lake.docx")
    assert blocks(page) == ["The lake & more.", "x | 1"]
    original = page.example.original
    assert original and original.place(Span(1, 2)) is None
    assert page.example.text(Span(1, 5)) == "The lake & more"


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.pdf", document_files.pdf(["x"], password="secret"), "password"),
        ("a.pdf", document_files.pdf([], []), "2 pages"),
        ("a.pdf", document_files.pdf(["x"])[:300], "PDF"),
        ("damaged.docx", document_files.docx("x"), "Word"),
        ("a.DOCM", b"<p>It rains.</p>", "text"),
        ("a.docx", b"{\\rtf1 It rains.}", "RTF"),
        ("a.doc", OLE, "an old document"),
        ("a.docx", OLE + "EncryptedPackage".encode("utf-16-le"), "with a password"),
        ("a.dat", bytes(range(1, 256)), "25"),
        ("a.txt", b"x" * 2000, "1.0 KiB"),
        ("a.pdf", b"%PDF-" + b"x" * 4000, "2.0 KiB"),
    ],
)
def test_a_document_that_cannot_be_read_has_a_reason(
    name: str, data: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "damaged.docx":
        byte = data.index(b"word/document.xml") + 40
        data = data[:byte] + bytes([data[byte] ^ 255]) + data[byte + 1 :]
    monkeypatch.setattr(fields.LIMITS, "bytes", 1024)
    monkeypatch.setattr(fields.LIMITS, "document_bytes", 2048)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message) as error:
        read_page(tmp_path / name)
    assert str(tmp_path / name) in str(error.value) and "\n" not in str(error.value)


def test_pages_of_pdf_are_counted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields.LIMITS, "characters", 100)
    data = document_files.pdf(*[["x" * 40]] * 50)
    with pytest.raises(ValueError, match=r"12\d"):
        decode_page(data, "a.pdf")  # at the third of its 50 pages
