"""Tests that HTML, text and records become pages with the tokens and candidates of NQ."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.answers import Page
from nq.formats.documents import decode_page, decode_text, page_from_html, page_from_text
from nq.formats.html import MAX_DEPTH, parse_html
from nq.formats.inputs import read_page
from nq.formats.words import BLOCKS
from nq.records import Span
from tests.formats.reading import blocks
from tests.support import nq_records

TAGS = ("p", "div", "table", "tr", "td", "th", "ul", "ol", "li", "dl", "dd", "h1", "b", "a")
MARKUP = st.lists(
    st.sampled_from([f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/")])
    | st.sampled_from(["<br>", "<p hidden>", "<script>", "</script>", "<title>", "<!--", "-->"])
    | st.sampled_from(["&amp;", "&#0;", "&nbsp;", "&#xD800;", "<![CDATA[", "<?x", "<", ">", "&"])
    | st.text(max_size=8)
).map("".join)


def without_white_space(text: str) -> str:
    return re.sub(r"\s", "", text)


def visible_text(page: Page) -> str:
    """Returns the words of all top-level blocks."""
    spans = [c.span for c in page.example.candidates if c.top_level]
    tokens = [token for span in spans for token in range(span.start, span.end)]
    return "".join(page.spelling[i] for i in tokens if not page.example.is_html[i])


def check_page(page: Page) -> None:
    """Asserts the invariants of every page."""
    example = page.example
    assert len(example.tokens) == len(example.is_html) == len(page.spelling)
    spans = [c.span for c in example.candidates]
    assert spans == sorted(spans, key=lambda s: (s.start, -s.end))
    assert len(set(spans)) == len(spans)
    for candidate in example.candidates:
        span = candidate.span
        assert 0 <= span.start < span.end <= len(example.tokens)
        name = example.tokens[span.start].strip("<>")
        assert name.lower() in BLOCKS
        assert example.tokens[span.end - 1] == f"</{name}>"
        check_balance(page, span)
        assert example.text(span)
        outer = [other for other in spans if other != span and other.contains(span)]
        assert candidate.top_level == (not outer)
    check_balance(page, Span(0, len(example.tokens)))


def check_balance(page: Page, span: Span) -> None:
    open_tags: list[str] = []
    for i in range(span.start, span.end):
        if page.example.is_html[i]:
            tag = page.example.tokens[i].strip("<>")
            if tag.startswith("/"):
                assert open_tags.pop() == tag[1:]
            else:
                open_tags.append(tag)
    assert not open_tags


@given(MARKUP | st.text())
def test_any_markup_gives_a_consistent_page(markup: str) -> None:
    page = parse_html(markup)
    check_page(page)
    assert page.example.original
    for start, end in page.example.original.chars.tolist():
        assert (start, end) in ((-1, -1), (-2, -2)) or 0 <= start < end <= len(markup)


PIECES = st.lists(
    st.sampled_from(
        [
            *("Moon", "AT&amp;T", "&copy;", "caf&eacute;", "&#39;s", "&nbsp;", "1 < 2", "&", "a&b"),
            *(" ", "\n", "\r\n", "\t", "<br>", "<b>", "</b>", "<a href='x>y'>", "</a>"),
            *("<p>", "</p>", "<ul><li>", "</ul>", '<i title="a > b">', "</i>", "</ x>"),
            *("<!-- Moon -->", "<!---->", "<script>Moon<b></script>", "<style>p{}</style>"),
            *("<title>Moon &amp; Sun</title>", "\U0001f600", "e\u0301", "<p hidden>Moon</p>"),
        ]
    ),
    max_size=30,
).map("".join)


def readable(markup: str) -> str:
    """Returns the characters that a part of HTML displays, without white space."""
    without = re.sub(
        r"<!--.*?-->|<(script|style|title)>.*?</\1>|<p hidden>.*?</p>", "", markup
    )  # a title is displayed elsewhere, even if it is inside a word
    without = re.sub(r"""</?[a-z]+(?:\s+[a-z]+=(?:'[^']*'|"[^"]*"))?>|</ x>""", "", without)
    return re.sub(r"\s", "", unescape(without))


@given(PIECES)
def test_every_word_is_where_the_source_has_it(markup: str) -> None:
    page = parse_html(markup)
    assert page.example.original
    places, end_of_last = page.example.original.chars.tolist(), 0
    for spelling, is_tag, (start, end) in zip(
        page.spelling, page.example.is_html, places, strict=True
    ):
        if is_tag:
            assert (start, end) == (-1, -1)
            continue
        assert end_of_last <= start < end <= len(markup)
        assert readable(markup[start:end]) == re.sub(r"\s", "", spelling)
        end_of_last = end if "&" not in markup[start:end] else start


def test_tokens_and_candidates_match_nq() -> None:
    page = parse_html(
        "<html><head><title>The  Tower</title><style>p{}</style></head><body><nav>Home</nav>"
        "<h1>The Tower</h1><p>It&#39;s <i>old</i> (1874).<p>Wiki<b>pedia</b><br>says&nbsp;so"
        "<table><tr><th>Height<td>31&thinsp;m</table>Loose words.<ul><li>One <p>Two</ul>"
    )
    example = page.example
    assert " ".join(example.tokens) == (
        "<P> The Tower It 's old ( 1874 ) . </P> <P> Wikipedia says so </P> "
        "<Table> <Tr> <Th> Height </Th> <Td> 31 m </Td> </Tr> </Table> <P> Loose words . </P> "
        "<Ul> <Li> One <P> Two </P> </Li> </Ul>"
    )
    found = [(example.tokens[c.span.start], c.top_level) for c in example.candidates]
    tops = ["<P>", "<P>", "<Table>", "<Tr>", "<P>", "<Ul>", "<Li>", "<P>"]
    levels = (True, True, True, False, True, True, False, False)
    assert found == list(zip(tops, levels, strict=True))
    assert example.title == "The Tower"
    paragraphs = ["The Tower\nIt's old (1874).", "Wikipedia says so"]
    assert blocks(page) == [*paragraphs, "Height | 31 m", "Loose words.", "One\nTwo"]


@pytest.mark.parametrize(
    ("head", "counts"),
    [
        ('<meta name="generator" content="MediaWiki 1.45.0"><title>Wiki</title>', True),
        ('<meta name="generator" content="Other"><p>By MediaWiki</p>', False),
    ],
)
def test_class_names_of_wikipedia_count_on_its_pages_alone(head: str, counts: bool) -> None:
    page = parse_html(head + "<p>One <a class=reference>two</a></p><ul class=navbox><li>Three</ul>")
    assert ("two" in visible_text(page)) != counts
    assert ("Three" in visible_text(page)) != counts


@given(st.text() | st.lists(st.sampled_from(["a b.", "\n", "\r\n", " ", "\f"])).map("".join))
def test_text_becomes_paragraphs(text: str) -> None:
    visible = re.sub(r"[\s\x00-\x1f\x7f-\x9f]", "", text)
    if not visible:
        with pytest.raises(ValueError, match="page"):
            page_from_text(text)
        return
    page = page_from_text(text)
    check_page(page)
    assert all(c.top_level for c in page.example.candidates)
    assert without_white_space(visible_text(page)) == visible


def test_blank_lines_separate_paragraphs() -> None:
    text = decode_text(b"One\r\ntwo.\r\n \r\nThree.\n\n\n\nFour.", "x.txt")
    assert blocks(page_from_text(text)) == ["One two.", "Three.", "Four."]


@given(st.binary(max_size=200), st.sampled_from(["x.txt", "x.html", "x", "standard input"]))
def test_any_bytes_are_a_page_or_a_value_error(data: bytes, name: str) -> None:
    try:
        page = decode_page(data, name)
    except ValueError as error:
        assert name in str(error)
    else:
        check_page(page)


MOON = '<p lang="a > b">Луна</p>'


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.txt", b"<b>1 < 2</b>", "<b>1 < 2</b>"),
        ("a", b"just <words>, a < b", "just <words>, a < b"),
        ("a", b"\n<!DOCTYPE html><p>hi", "hi"),
        ("a.txt", "hé".encode("utf-16"), "hé"),
        ("a.html", '<meta charset="utf-8"><p>hé'.encode("latin-1"), "hé"),
        ("a.html", '<meta charset="iso-8859-7"><p>Ωα'.encode(), "Ωα"),
        ("a.txt", "né, cut off: é".encode()[:-1], "né, cut off: \ufffd"),
        *(
            ("a.html", f'<meta charset="{label}"><p>{text}</p>'.encode(codec), text)
            for label, codec, text in [
                *(("ISO-8859-1", "cp1252", "“5€”"), ("gb2312", "gbk", "朱镕基")),
                *(("iso-2022-jp", "iso2022_jp", "東京"), ("x-user-defined", "cp1252", "é€")),
            ]
        ),
        *(
            ("a.html", f"{head}{MOON}".encode("cp1251"), "Луна")
            for head in [
                "<?xml version='1.0' encoding='windows-1251' ?>",
                '<meta content="text/html; charset=windows-1251" http-equiv="Content-Type">',
                '<!-- <meta charset="greek"> --><META CharSet=cp1251 charset=greek />',
                "<a title='<meta charset=greek>'><meta charset=no><meta charset='windows-1251'>",
                '<?xml version="1.0" encoding="greek"?><meta charset="windows-1251">',
                f"{' ' * 980}<meta charset='windows-1251'>",
            ]
        ),
        *(
            ("a.html", f"{head}<p>é€</p>".encode("cp1252"), "é€")
            for head in [
                f"{' ' * 1010}<meta charset='greek'>",
                '<meta charset="utf-16"><?xml version="1.0" encoding="greek"?>',
                '<meta name="charset" content="text/html; charset=greek">',
                '<meta charset="rot13">',
            ]
        ),
        ("a.html", f"<?xml version='1.0' encoding='utf-16'?>{MOON}".encode("utf-16-le"), "Луна"),
        ("a.html", f'<meta charset="greek">{MOON}'.encode("utf-8-sig"), "Луна"),
    ],
)  # fmt: skip
def test_format_and_encoding_are_detected(name: str, data: bytes, expected: str) -> None:
    assert visible_text(decode_page(data, name)).strip() == expected


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<b><template shadowrootmode=open>no</template>a</b><template>no</template>", "a"),
        ("<object data=a.swf><param name=b>a</object><canvas>no</canvas>", "a"),
        ("<div popover=auto>no</div>a<dialog popover open>b</dialog>", "a b"),
        ("<ul style='visibility:hidden'>no<li>no<li style='visibility:visible'>a</ul>b", "a b"),
        ("<p style='display:none'>no<b style='display:block!important'>no</b></p>a", "a"),
        ("<p hidden style='display:block'>a</p><p style='display:none;display:x'>no", "a"),
        ("<b style=\"a:';display:none';/*display:none*/b:url(;display:none)\">a</b>", "a"),
    ],
)
def test_words_are_those_that_are_displayed(markup: str, expected: str) -> None:
    page = parse_html(markup)
    check_page(page)
    assert " ".join(" ".join(blocks(page)).split()) == expected


def visible_words(page: Page) -> Iterator[str]:
    pairs = zip(page.example.tokens, page.example.is_html, strict=True)
    return (token for token, html in pairs if not html)


@pytest.mark.parametrize("tag", ["b", "div", "ul><li", "table><tr><td", "section", "p><b"])
def test_elements_that_are_too_deep_lose_no_word(tag: str) -> None:
    n = 2 * MAX_DEPTH
    markup = "".join(f"<{tag} class='a > b'>w{i} <!-- </p> -->x{i} </i></title>" for i in range(n))
    html = f"<title>deep</title><script>'<p>'</script><h1>Top</h1>{markup}</{tag}>last"
    page = page_from_html(html)
    deep = [word for i in range(n) for word in (f"w{i}", f"x{i}")]
    assert [word for word in visible_words(page) if word.isalnum()] == ["Top", *deep, "last"]
    assert page.example.title == "deep"
    original = page.example.original
    assert original is not None
    for word, (start, end) in zip(page.example.tokens, original.chars.tolist(), strict=True):
        assert start < 0 or html[start:end] == word


def test_a_page_without_words_is_a_value_error() -> None:
    for data in (b"", b" \n\n ", b"<html><p></p></html>", b"<script>x</script>"):
        with pytest.raises(ValueError, match=r"page\.html"):
            decode_page(data, "page.html")


def test_records_are_chosen_by_number_or_id(tmp_path: Path) -> None:
    lines = [nq_records.v1(7), nq_records.simplified(8), b"no json", nq_records.simplified(9)]
    records = nq_records.write_lines(tmp_path / "some.jsonl.gz", lines)
    for wanted, expected in {None: 7, "1": 7, "2": 8, "9": 9, 4: 9}.items():
        page = read_page(records, wanted)
        assert page.example.example_id == expected
        assert page.text(Span(3, 14)).split()[:3] == ["the", "moon", "landing"]
        example = page.with_question("why")
        assert (example.question, example.annotations) == ("why", None)
    for wanted, value in (("3", "line 3"), ("5", "5"), ("x", "x")):
        with pytest.raises(ValueError, match=value):
            read_page(str(records), wanted)
