"""Tests of what is read of a Word document."""

import io
import random
import zipfile

import pytest

from nq.answers import Page
from nq.formats.documents import decode_page
from tests.formats import reading
from tests.support.document_files import STRICT_WORDML, cell, p, run, tbl, word
from tests.support.peak_memory import limited_memory

FIELD = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
BEGIN, SEPARATE, END = map(FIELD.format, ("begin", "separate", "end"))
HIDDEN = "<w:rPr><w:vanish/></w:rPr>"
HEADING = '<w:pPr><w:pStyle w:val="Heading2"/></w:pPr>'
DELETED_END = "<w:pPr><w:rPr><w:del/></w:rPr></w:pPr>"


def item(text: str, number: int, level: int = 0) -> str:
    about = f'<w:ilvl w:val="{level}"/><w:numId w:val="{number}"/>'
    return p(f"<w:pPr><w:numPr>{about}</w:numPr></w:pPr>", run(text))


def style(name: str, about: str, base: str = "") -> str:
    based = f'<w:basedOn w:val="{base}"/>' if base else ""
    return f'<w:style w:styleId="{name}"><w:name w:val="{name}"/>{based}{about}</w:style>'


def read(data: bytes) -> Page:
    return decode_page(data, "a.docx")


def blocks(data: bytes) -> list[str]:
    return [" ".join(block.split()) for block in reading.blocks(read(data))]


def box(text: str) -> str:
    return f"<w:pict><w:txbxContent>{p(text)}</w:txbxContent></w:pict>"


def choice(first: str, second: str) -> str:
    forms = f"<mc:Choice>{first}</mc:Choice><mc:Fallback>{second}</mc:Fallback>"
    return f"<w:r><mc:AlternateContent>{forms}</mc:AlternateContent></w:r>"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        *(
            (p("by ", f"<w:{name}>{run('Ada')}</w:{name}>", " in"), ["by Ada in"])
            for name in ("fldSimple", "bdo", "hyperlink", "ins", "new")
        ),
        (p("by ", f"<w:sdt><w:sdtContent>{run('Ada')}</w:sdtContent></w:sdt>"), ["by Ada"]),
        (f"<w:sdt><w:sdtContent>{p('by Ada')}</w:sdtContent></w:sdt>", ["by Ada"]),
        *(
            (p("by ", f"<w:{name}>{run('Bea')}</w:{name}>", "Ada"), ["by Ada"])
            for name in ("del", "moveFrom")
        ),
        (p("by ", BEGIN, "<w:r><w:instrText>DATE</w:instrText></w:r>", SEPARATE, "Ada", END, "."),
         ["by Ada."]),
        (p("by ", BEGIN, run("IF "), BEGIN, run("x"), SEPARATE, run("y"), END, SEPARATE, "Ada",
           END), ["by Ada"]),
        (p("a ", BEGIN, "b"), ["a b"]),  # a field that does not end
        (p(f"<w:r><w:ruby><w:rt>{run('kyo')}</w:rt><w:rubyBase>{run('東')}</w:rubyBase></w:ruby></w:r>"),
         ["東"]),
        *(
            (p(f"<w:r><w:t>lit</w:t><w:{name}/><w:t>in</w:t></w:r>"), [f"lit{between}in"])
            for name, between in (
                ('br w:type="page"', " "), ("tab", " "), ("noBreakHyphen", "\u2011"),
                ('sym w:font="Symbol" w:char="F06D"', "μ"), ('sym w:font="X" w:char="F06D"', " "),
            )
        ),
        (p("a ", run("x", HIDDEN), run("b", HIDDEN.replace("/>", ' w:val="false"/>'))), ["a b"]),
        (p(DELETED_END, run("It ")) + p("rains."), ["It rains."]),
        (p(DELETED_END, run("It ")) + tbl(cell(p("x"))), ["It", "x"]),
        (p("a ", f"<w:r>{box('boxed')}</w:r>", "b") + p("c"), ["a b", "boxed", "c"]),
        (p("a ", choice(box("boxed"), box("boxed")), "b"), ["a b", "boxed"]),
        (p("a ", choice("<w:symEx/>", "<w:t>☺</w:t>")), ["a ☺"]),
        (p("is ", "<m:oMath><m:sSup><m:e><m:r><m:t>10</m:t></m:r></m:e><m:sup><m:r><m:t>6</m:t>"
           "</m:r></m:sup></m:sSup></m:oMath>", " kg"), ["is 10^6 kg"]),
        (tbl(cell(p("a") + p("b")) + cell(tbl(cell(p("c")) + cell(p("d"))))), ["a b c | d"]),
        (p(HEADING, "a") + tbl(cell(p(HEADING, "b")) + cell(p("c"))), ["a b | c"]),
        (tbl("<w:trPr><w:tblHeader/></w:trPr>" + cell(p("a")), cell(p("b"))), ["a b"]),
    ],
)  # fmt: skip
def test_what_word_displays_is_read(body: str, expected: list[str]) -> None:
    assert blocks(word(body)) == expected
    assert blocks(word(body, main="document.xml", namespace=STRICT_WORDML)) == expected


def test_styles_hide_text_and_make_headings_and_lists() -> None:
    styles = style("Secret", HIDDEN) + style("More", "", "Secret") + style("Own", "", "Heading2")
    styles += style("Heading2", "") + style("Circle", "", "Circle")
    styles += style("Bullets", '<w:pPr><w:numPr><w:numId w:val="7"/></w:numPr></w:pPr>')
    kinds = (("1", "bullet"), ("2", "decimal"))
    numbering = "".join(
        f'<w:abstractNum w:abstractNumId="{n}"><w:lvl w:ilvl="0"><w:numFmt w:val="{kind}"/>'
        f'</w:lvl></w:abstractNum><w:num w:numId="{n}{n}"><w:abstractNumId w:val="{n}"/></w:num>'
        for n, kind in kinds
    )
    numbering += '<w:num w:numId="7"><w:abstractNumId w:val="1"/></w:num>'

    def styled(name: str, *runs: str) -> str:
        return p(f'<w:pPr><w:pStyle w:val="{name}"/></w:pPr>', *map(run, runs))

    secret = '<w:rPr><w:rStyle w:val="More"/></w:rPr>'
    shown = '<w:pPr><w:pStyle w:val="Secret"/></w:pPr>'  # hidden twice is displayed
    body = styled("Own", "Head") + p("a ", run("x", secret)) + p(shown, run("b", secret) + run("x"))
    body += styled("Circle", "c") + styled("Bullets", "d") + item("e", 11) + item("f", 22, 1)
    body += item("g", 11) + item("h", 22) + styled("More", "x") + item("i", 5) + item("j", 0)
    parts = {"styles.xml": styles, "numbering.xml": numbering}
    data = word(body, parts={name: f"<w:root>{xml}</w:root>" for name, xml in parts.items()})
    assert blocks(data) == ["Head a", "b", "c", "d e f g", "h", "i", "j"]
    tokens = read(data).example.tokens
    tags = [token for token in tokens if token[1:3] in ("Ul", "Ol", "Li") or token[2:4] == "Ul"]
    assert tags == ["<Ul>", "<Li>", "<Li>", "<Ol>", "<Li>", "<Li>", "</Ul>", "<Ol>", "<Li>"]


def test_notes_are_at_the_end_and_headers_and_comments_are_not_read() -> None:
    notes = "".join(f'<w:footnote w:id="{i}">{p("note ", str(i))}</w:footnote>' for i in range(4))
    mark = '<w:r><w:footnoteReference w:id="{}"/></w:r>'
    body = p("in 1874", mark.format(3), " and", mark.format(1), mark.format(3))
    other = f"<w:root>{p('other')}</w:root>"
    parts = {"footnotes.xml": f"<w:root>{notes}</w:root>"}
    data = word(body, parts=parts | dict.fromkeys(("comments.xml", "header1.xml"), other))
    assert blocks(data) == ["in 1874 [1] and [2] [1]".replace(" [", "["), "note 3 note 1"]


@pytest.mark.parametrize(
    ("name", "chunk"),
    [
        ("a.html", b"<html><body><title>no</title><p>in</p><div><!-- x"),
        ("a.txt", b"\xef\xbb\xbfin\n"),
        ("a.docx", word(p("in"))),
        (
            "a.mht",
            b"MIME-Version: 1.0\nContent-Type: multipart/related; boundary=x\n\n--x\n"
            b"Content-Type: text/html\nContent-Transfer-Encoding: quoted-printable\n\n"
            b"<p id=3D1>i=\nn</p>\n--x--\n",
        ),
    ],
)
def test_imported_files_are_read(name: str, chunk: bytes) -> None:
    body = p("a") + '<w:altChunk r:id="r5"/>' + p("b")
    data = word(body, targets={"r5": name}, parts={name: chunk})
    assert blocks(data) == ["a", "in", "b"]
    for missing in (word(body, targets={"r5": name}), word(body)):
        with pytest.raises(ValueError, match=r"^a\.docx .*\bpart\b"):
            read(missing)


@pytest.mark.parametrize("chunk", [b"{\\rtf1 in}", b"<div>" * 300 + b"in"])
def test_an_imported_file_that_cannot_be_read_refuses_the_document(chunk: bytes) -> None:
    data = word(
        '<w:altChunk r:id="r5"/>' + p("b"), targets={"r5": "a.html"}, parts={"a.html": chunk}
    )
    with pytest.raises(ValueError, match=r"^a\.docx .*word/a\.html"):
        read(data)


@pytest.mark.parametrize(
    ("body", "n_noise", "problem"),
    [
        (p("a " * 1_000_000), 0, "more bytes"),
        ('<w:altChunk r:id="r5"/>' * 20_000, 0, "twice"),
        ("<w:r w:a=''/>" * 500_000, 100_000, "nodes"),
    ],
)
def test_a_small_file_that_expands_is_refused(body: str, n_noise: int, problem: str) -> None:
    parts = {"a.docx": word(p("in")), "noise": random.Random(0).randbytes(n_noise)}
    data = word(body, targets={"r5": "a.docx"}, parts=parts)
    with (
        limited_memory(128 << 20),
        pytest.raises(ValueError, match=rf"^a\.docx .*{problem}"),
    ):
        read(data)


def test_entities_are_refused() -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        xml = '<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>'
        archive.writestr("word/document.xml", xml.encode("utf-16"))
    with limited_memory(128 << 20), pytest.raises(ValueError, match="entities"):
        read(data.getvalue())
