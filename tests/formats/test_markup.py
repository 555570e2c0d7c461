"""Tests where the words of an HTML page are in its source."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from nq.formats.html import parse_html
from nq.records import Original

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
    return re.sub(r"\s", "", html.unescape(without))


def original(markup: str) -> Original:
    found = parse_html(markup).example.original
    assert found is not None
    return found


@given(PIECES)
def test_every_word_is_where_the_source_has_it(markup: str) -> None:
    page = parse_html(markup)
    place = original(markup)
    end_of_last = 0
    for spelling, is_tag, (start, end) in zip(
        page.spelling, page.example.is_html, place.chars.tolist(), strict=True
    ):
        if is_tag:
            assert (start, end) == (-1, -1)
            continue
        assert end_of_last <= start < end <= len(markup)
        assert readable(markup[start:end]) == re.sub(r"\s", "", spelling)
        end_of_last = end if "&" not in markup[start:end] else start


@given(st.text(st.sampled_from("<>!-/?&#;\"'= \nabp\r\x00"), max_size=40) | st.text())
def test_broken_markup_gives_places_in_the_source_or_none(markup: str) -> None:
    for start, end in original(markup).chars.tolist():
        assert (start, end) in ((-1, -1), (-2, -2)) or 0 <= start < end <= len(markup)
